"""Runs an example of Python as a program."""

import os
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def run_example(name, folder):
    """What it prints; an example whose numbers are wrong ends with an exit code other than 0."""
    # Tiny products: on a busy machine PyTorch's threads would mostly wait for one another.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, cwd=folder,
                          env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
