#!/usr/bin/env python3
"""The rapt command: results on stdout, JSON with the promised keys, exit codes 0, 1 and 2.

    command.py RAPT [-k NAME]"""

import os
import pathlib
import sys
import unittest

os.environ["RAPT_COMMAND"] = sys.argv.pop(1)
folder = pathlib.Path(__file__).with_name("command")
unittest.main(module=None, argv=[sys.argv[0], "discover", "-s", str(folder), *sys.argv[1:]])
