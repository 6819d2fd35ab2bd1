#!/usr/bin/env python3
"""One rank of a job over MPI fails; the job ends within seconds, with that rank's text and an exit code that is not 0.

usage: mpi_faults.py MPIRUN RAPT_MPI_TESTS"""

import subprocess
import sys
import time

LIMIT_S = 10
TEXTS = {
    "throw": "rank 1 failed: the disk is full\n",
    "abort": "rank 1 failed: no memory\n",
    "kill": "",  # the launcher says so
    "exit": "",
    "hang": "(barrier): not done after 2 s. The other rank has stopped",
    "unfinished": "rank 1 failed: rank 1 sending 10000000 bytes to rank 0 (tag 1): the message was destroyed before",
}


def mistake(mpirun, program, fault, text):
    began = time.monotonic()
    try:
        done = subprocess.run([mpirun, "-n", "3", program, fault], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return f"{fault}: still running after 60 s"
    took = time.monotonic() - began
    print(f"{fault}: exit code {done.returncode} after {took:.1f} s")
    if done.returncode == 0 or took > LIMIT_S or text not in done.stderr or "not reached" in done.stdout:
        return f"{fault}: exit code {done.returncode} after {took:.1f} s, expected {text!r} in:\n{done.stderr}"
    return None


def main(mpirun, program):
    mistakes = list(filter(None, (mistake(mpirun, program, fault, text) for fault, text in TEXTS.items())))
    print("\n".join(mistakes) or f"{len(TEXTS)} faults, every job ended in time")
    return 1 if mistakes else 0


sys.exit(main(*sys.argv[1:]))
