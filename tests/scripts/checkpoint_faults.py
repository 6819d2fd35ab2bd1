#!/usr/bin/env python3
"""Saves checkpoints while every system call of a save is killed or fails in turn, and looks each
time whether a whole checkpoint is left: checkpoint_faults.py path/to/checkpoint_tool"""

import collections
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

# Before a run two checkpoints are there. It saves a third, and the first may go; or it saves the
# second once more, and that one must be there all the time.
BEFORE, SAVED, REPLACED = ("1", "2"), "3", "2"
CALL = re.compile(r"^(?:\d+ +)?(\w+)\(")
# Errors and the calls they are given to. What the tool does afterwards is its own business, as
# long as a checkpoint is left, no rest is, and the next save works.
ERRORS = {
    "ENOSPC": ("write", "fsync", "openat", "mkdir", "rename", "renameat2", "close"),
    "EIO": ("write", "fsync", "openat", "mkdir", "rename", "renameat2", "close", "unlinkat",
            "getdents64", "fstat", "newfstatat"),
    "EDQUOT": ("write", "mkdir"),
    "EXDEV": ("rename", "renameat2"),
    "EACCES": ("openat", "mkdir", "rename", "renameat2", "unlinkat"),
}


class Faults:
    def __init__(self, tool, folder):
        self.tool, self.folder = tool, pathlib.Path(folder)
        self.run = self.folder / "run"
        self.template = self.folder / "template"
        self.failures, self.runs = [], collections.Counter()
        for step in BEFORE:
            subprocess.run([tool, "save", self.template, step], check=True)

    def start(self):
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.template, self.run)

    def save(self, *strace, step=SAVED, **options):
        command = [self.tool, "save", self.run, step]
        if strace:
            command = ["strace", "-f", "-qq", "-o", self.folder / "log", *strace, *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)

    def check(self):
        done = subprocess.run([self.tool, "check", self.run], capture_output=True, text=True,
                              timeout=60)
        return done.stdout.strip() if done.returncode == 0 else f"error: {done.stderr.strip()}"

    def calls(self, step=SAVED):
        """System calls in the order they are made, from the first that knows the folder on: name
        and how often it has been made by then."""
        self.start()
        done = self.save("-e", "trace=all", step=step)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        counts, result, begun = collections.Counter(), [], False
        for line in (self.folder / "log").read_text().splitlines():
            match = CALL.match(line)
            if not match:
                continue
            counts[match[1]] += 1
            begun = begun or str(self.run) in line and not line.startswith("execve") \
                and "execve(" not in line
            if begun and match[1] != "exit_group":
                result.append((match[1], counts[match[1]]))
        return result

    def expect(self, what, good, found):
        self.runs[what.split()[0]] += 1
        if found not in good:
            self.failures.append(f"{what}: latest is {found}, expected {' or '.join(good)}")

    def killed(self, call, number, step=SAVED):
        self.start()
        what = f"kill at {call} {number} of saving {step}"
        self.save("-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}",
                  step=step)
        self.expect(what, (BEFORE[-1], step), self.check())
        self.saved_again(what)

    def saved_again(self, what):
        again = self.save()
        if again.returncode != 0 or self.check() != SAVED:
            self.failures.append(f"{what}: the next save fails: {again.stderr.strip()}")
        rests = [path.name for path in self.run.iterdir() if ".tmp." in path.name]
        if rests:
            self.failures.append(f"{what}: the next save leaves {rests}")

    def failed(self, error, call, number, when=""):
        self.start()
        what = f"{error} of {call} {number}{when}"
        done = self.save("-e", f"trace={call}", "-e",
                         f"inject={call}:error={error}:when={number}{when}")
        good = (SAVED,) if done.returncode == 0 else (BEFORE[-1], SAVED)
        rests = [path.name for path in self.run.iterdir() if ".tmp." in path.name]
        # A disk that stays full is also full for the message.
        named = str(self.run) in done.stderr or when
        if done.returncode not in (0, 1) or done.returncode == 1 and not named:
            self.failures.append(f"{what}: ended with {done.returncode}: {done.stderr.strip()}")
        if done.returncode == 1 and rests and call not in ("unlinkat", "getdents64", "openat",
                                                           "newfstatat", "fstat", "close") \
                and not when:
            self.failures.append(f"{what}: leaves {rests}")
        self.expect(what, good, self.check())
        self.saved_again(what)

    def interrupted(self, call, number):
        self.start()
        done = self.save("-e", f"trace={call}", "-e", f"inject={call}:error=EINTR:when={number}")
        found = self.check() if done.returncode == 0 else done.stderr.strip()
        self.expect(f"EINTR of {call} {number}", (SAVED,), found)

    def too_large(self, limit):
        """A limit on the size of files, as a full disk: it ends a write in the middle."""
        self.start()
        done = self.save(restore_signals=False, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))
        what = f"EFBIG at byte {limit}"
        self.expect(what, (SAVED,) if done.returncode == 0 else (BEFORE[-1],), self.check())
        if any(".tmp." in path.name for path in self.run.iterdir()):
            self.failures.append(f"{what}: leaves a rest")


def may_trace():
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-qq", "-o", os.devnull, "-e", "inject=getpid:error=EIO",
                           "true"], capture_output=True, text=True)
    return done.stderr.strip() or "strace cannot trace" if done.returncode != 0 else None


def main(tool):
    with tempfile.TemporaryDirectory() as folder:
        faults = Faults(tool, folder)
        for limit in (0, 1, 100, 1000, 2000, 2100, 2200, 5000):
            faults.too_large(limit)
        reason = may_trace()
        if reason:
            print(f"checkpoint_faults: system calls are not made to fail: {reason}")
        else:
            calls = faults.calls()
            for call, number in calls:
                faults.killed(call, number)
            for call, number in faults.calls(REPLACED):
                faults.killed(call, number, REPLACED)
            for error, names in ERRORS.items():
                for call, number in calls:
                    if call in names:
                        faults.failed(error, call, number)
            for call in ("write", "fsync"):  # and a disk that stays full
                first = next(number for name, number in calls if name == call)
                faults.failed("ENOSPC", call, first, "+")
            for call, number in calls:
                if call in ("write", "openat"):
                    faults.interrupted(call, number)
        print("\n".join(faults.failures) or ", ".join(
            f"{count} x {fault}" for fault, count in faults.runs.items())
            + ": a whole checkpoint was left each time")
        return 1 if faults.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
