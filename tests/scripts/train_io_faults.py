#!/usr/bin/env python3
"""Trains while system calls on the run's folder fail one by one, with a full disk or a
broken one. Each time: one error that names a file of the run and exit code 1, or a run that got
through all the same; and a resumed run ends with the bits of one that was left alone.

usage: train_io_faults.py RAPT [all]    all: every call, not only a few of each kind
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from checkpoint_faults import may_trace

RAPT = pathlib.Path(sys.argv[1]).resolve()
ALL = "all" in sys.argv[2:]
OF_A_KIND = 2  # faults of one error and call, unless all are asked for
STEPS = 6
CONFIG = f"""
[model]
hidden_size = 16
layers = 1
heads = 2
[data]
path = "TEXT"
batch_size = 2
tokens = 16
eval_batches = 1
[tokenizer]
kind = "bpe"
vocab_size = 270
[train]
steps = {STEPS}
log_every = 1
evaluate_every = 3
save_every = 2
"""
CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")
ERRORS = {
    "ENOSPC": ("write", "fsync", "openat", "mkdir", "rename", "renameat2"),
    "EIO": ("write", "fsync", "openat", "mkdir", "rename", "renameat2", "close", "unlink",
            "unlinkat", "getdents64", "read", "pread64", "fstat", "newfstatat", "statx", "flock"),
}
# Where others read the outcome of a call, a failure says nothing that they would need.
QUIET = ("close", "unlink", "unlinkat")


class Faults:
    def __init__(self, home):
        self.home, self.run = home, home / "run"
        words = " ".join(f"word{i * i % 37}" for i in range(900))
        (home / "text.txt").write_text(words)
        (home / "run.toml").write_text(CONFIG.replace("TEXT", str(home / "text.txt")))
        self.failures, self.runs = [], collections.Counter()
        done = self.train()
        if done.returncode != 0:
            sys.exit(f"train_io_faults: {done.stderr}")
        self.expected = self.outcome()

    def train(self, *strace, resume=False):
        command = [RAPT, "train", "--config", self.home / "run.toml", "--out", self.run]
        command += ["--threads", "1"] + (["--resume"] if resume else [])
        if strace:
            command = ["strace", "-f", "-qq", "-o", self.home / "log", *strace, *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def outcome(self):
        """Lines of metrics, without how fast it was, and all numbers."""
        lines = []
        for line in (self.run / "metrics.jsonl").read_text().splitlines():
            values = json.loads(line)
            for key in ("tokens_per_second", "of_peak"):
                values.pop(key, None)
            lines.append(values)
        tensors = sorted((self.run / f"step-{STEPS:06}").glob("*.safetensors"))
        return lines, [tensor.read_bytes() for tensor in tensors]

    def calls(self, before):
        """Calls on the folder: name, how often it has been made by then, the line of the trace."""
        before()
        self.train("-y", "-e", "trace=all", resume=True)
        counts, result = collections.Counter(), []
        for line in (self.home / "log").read_text().splitlines():
            match = CALL.match(line)
            if not match:
                continue
            counts[match[1]] += 1
            if str(self.run) in line and "execve(" not in line:
                result.append((match[1], counts[match[1]], line))
        return result

    def blame(self, what, found):
        self.failures.append(f"{what}: {found}")

    def failed(self, error, call, before, when=""):
        name, number, line = call
        before()
        what = f"{error} of {name} {number}{when} ({line[:120]})"
        self.runs[error] += 1
        done = self.train("-e", f"trace={name}", "-e", f"inject={name}:error={error}:when={number}{when}",
                          resume=True)
        said = [each for each in done.stderr.splitlines() if each.startswith("rapt: ")]
        lost = done.stderr.count("a line could not be written")
        if done.returncode == 1:
            if len(said) != 1 or str(self.run) not in said[0]:
                self.blame(what, f"says {done.stderr!r}")
        elif done.returncode != 0:
            self.blame(what, f"ended with {done.returncode}: {done.stderr!r}")
        elif name not in QUIET and not when and self.outcome()[1] != self.expected[1]:
            self.blame(what, "another outcome")
        self.gone_on(what, lost)

    def gone_on(self, what, lost):
        done = self.train(resume=True)
        if done.returncode != 0:
            return self.blame(what, f"does not continue: {done.stderr!r}")
        lines, tensors = self.outcome()
        missing = [line for line in self.expected[0] if line not in lines]
        if tensors != self.expected[1]:
            self.blame(what, "other numbers after going on")
        if len(missing) > lost or any(line not in self.expected[0] for line in lines):
            self.blame(what, f"{len(missing)} lines of metrics are missing, {lost} were announced")
        rests = [path.name for path in self.run.rglob("*") if ".tmp" in path.name]
        if rests:
            self.blame(what, f"leaves {rests}")

    def sweep(self, before):
        calls = self.calls(before)
        for error, names in ERRORS.items():
            for name in names:
                some = [call for call in calls if call[0] == name]
                if not ALL and len(some) > OF_A_KIND:
                    some = some[:: max(1, len(some) // OF_A_KIND)]
                for call in some:
                    self.failed(error, call, before)
                if some and name in ("fsync", "mkdir", "renameat2"):  # a disk that stays so
                    self.failed(error, some[len(some) // 2], before, "+")


def main():
    reason = may_trace()
    if reason:
        print(f"train_io_faults: system calls are not made to fail: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        faults = Faults(home)
        half = home / "half"  # a run that stopped behind step 4
        faults.run.rename(half)
        shutil.rmtree(half / f"step-{STEPS:06}")

        def go_on():
            shutil.rmtree(faults.run, ignore_errors=True)
            shutil.copytree(half, faults.run)

        faults.sweep(lambda: shutil.rmtree(faults.run, ignore_errors=True))
        faults.sweep(go_on)
        print("\n".join(faults.failures) or ", ".join(
            f"{count} x {fault}" for fault, count in faults.runs.items())
            + ": named each time, and the same bits when it continued")
        return 1 if faults.failures else 0


if __name__ == "__main__":
    sys.exit(main())
