"""Calls of the command that command.py was given."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
RAPT = os.environ["RAPT_COMMAND"]
EXAMPLE = str(ROOT / "examples" / "encoder-decoder.toml")


def rapt(*arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run([RAPT, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace",
                          env={**os.environ, **environment}, timeout=300)


def rapt_json(*arguments):
    done = rapt(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)
