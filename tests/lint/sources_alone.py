#!/usr/bin/env python3
"""Every source of a joined file (cmake/unity.cmake) compiles on its own, too: what a source takes from
its neighbour without saying so may be another thing of the same name. The fuzz build compiles most of
src one by one; this reads the others.

Usage: sources_alone.py BUILD NAME...    names of joined files, without their number"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(build, names):
    """One (source, command, folder) for each source of the joined files called after `names`."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        joined = pathlib.Path(entry["file"])
        if joined.parent != build / "unity" or joined.stem.rpartition("_")[0] not in names:
            continue
        command = shlex.split(entry["command"])
        at = command.index("-o")
        command = command[:at] + command[at + 2:]
        command = ["-fsyntax-only" if word == "-c" else word for word in command]
        for source in re.findall(r'^#include "(.+)"$', joined.read_text(), re.M):
            alone = [str(ROOT / source) if word == str(joined) else word for word in command]
            yield source, alone, entry["directory"]


def compile_alone(job):
    source, command, folder = job
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return f"{source} does not compile on its own:\n{done.stderr}" if done.returncode else None


def main(build, names):
    jobs = list(commands(build, names))
    if not jobs:
        print(f"no joined files called {', '.join(names)} in {build}")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = list(filter(None, pool.map(compile_alone, jobs)))
    print("\n".join(failed) or f"{len(jobs)} sources compile on their own")
    return 1 if failed else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]))
