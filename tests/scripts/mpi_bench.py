#!/usr/bin/env python3
"""rapt bench ranks over MPI: rank 0 alone prints, ranks have the bits of one, and too many ranks are one clear error.

usage: mpi_bench.py MPIRUN RAPT"""

import json
import subprocess
import sys

SMALL = ["bench", "ranks", "--backend", "mpi", "--tokens", "512", "--heads", "2", "--repeat", "1", "--json"]


def run(mpirun, rapt, *options):
    return subprocess.run([mpirun, "-n", "3", rapt, *SMALL, *options], capture_output=True, text=True, timeout=120)


def mistakes(mpirun, rapt):
    done = run(mpirun, rapt, "--strict", "--pattern", "causal & window(200, 0)", "--ranks", "2", "3")
    if done.returncode != 0:
        yield f"exit code {done.returncode}: {done.stderr}"
        return
    rows = json.loads(done.stdout)
    if [(row["ranks"], row["backend"], row["same_bits"]) for row in rows] != [(2, "mpi", True), (3, "mpi", True)]:
        yield f"unexpected rows: {rows}"
    if any(row["bytes_sent"] != row["bytes_needed"] for row in rows):
        yield f"a strict exchange sends {[row['bytes_sent'] for row in rows]} bytes, expected what it needs"
    done = run(mpirun, rapt, "--pattern", "causal", "--ranks", "5")
    if done.returncode == 0 or done.stdout or "--ranks is 5, but the job has 3" not in done.stderr:
        yield f"5 of 3 ranks: exit code {done.returncode}, {done.stdout!r}, {done.stderr!r}"


def main(mpirun, rapt):
    found = list(mistakes(mpirun, rapt))
    print("\n".join(found) or "ranks over MPI are timed and compared")
    return 1 if found else 0


sys.exit(main(*sys.argv[1:]))
