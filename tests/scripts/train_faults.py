#!/usr/bin/env python3
"""A run that is killed, interrupted or started twice ends with the bits of one that was left alone.

usage: train_faults.py RAPT [KILLS]
"""

import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RAPT = pathlib.Path(sys.argv[1]).resolve()
KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 25
STEPS = 60
CONFIG = f"""
[model]
hidden_size = 32
layers = 2
heads = 2
intermediate_size = 64
dropout = 0.1
attention_dropout = 0.1
[data]
path = "task:sort"
batch_size = 4
tokens = 64
symbols = 15
eval_batches = 2
[train]
steps = {STEPS}
warmup_steps = 5
accumulation_steps = 2
log_every = 1
evaluate_every = 20
save_every = 7
"""


def start(folder, *more):
    line = [RAPT, "train", "--config", folder.parent / "run.toml", "--out", folder, *more]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder, *more):
    process = start(folder, *more)
    _, errors = process.communicate()
    return process.returncode, errors


def outcome(folder):
    """Everything a run decides; how fast it was is not part of it."""
    lines = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        lines.append({k: v for k, v in values.items() if k not in ("tokens_per_second", "of_peak")})
    tensors = sorted((folder / f"step-{STEPS:06}").glob("*.safetensors"))
    return lines, [tensor.read_bytes() for tensor in tensors]


def expect(ok, what):
    if not ok:
        sys.exit(f"train_faults: {what}")


def killed_and_resumed(folder, expected, longest, rng):
    """Kills at random moments until one run gets through."""
    kills = 0
    while True:
        process = start(folder, "--resume", "--threads", str(rng.choice([1, 2, 3, 7])))
        time.sleep(rng.uniform(0, longest))
        if process.poll() is None:
            process.kill()
            kills += 1
        _, errors = process.communicate()
        if process.returncode == 0:
            break
        expect(process.returncode == -signal.SIGKILL, f"ended with {process.returncode}: {errors}")
        longest *= 1.1
    expect(outcome(folder) == expected, f"another outcome after {kills} kills")
    rests = [path.name for path in folder.rglob("*") if ".tmp." in path.name]
    expect(not rests, f"{kills} kills leave {rests}")
    return kills


def wait_for_metrics(folder):
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_text():
        time.sleep(0.002)


def check_signal(folder, expected, number, code):
    process = start(folder)
    wait_for_metrics(folder)
    process.send_signal(number)
    _, errors = process.communicate()
    if process.returncode != 0:  # it may have been done already
        expect(process.returncode == code, f"{number.name}: exit {process.returncode}: {errors}")
        code, errors = finish(folder, "--resume")
        expect(code == 0, errors)
    expect(outcome(folder) == expected, f"another outcome after {number.name}")


def interrupted(folder, *more, ready):
    """Interrupts once something is so; seconds until the end, and what it said."""
    process = start(folder, *more)
    while not ready() and process.poll() is None:
        time.sleep(0.002)
    expect(process.poll() is None, "was done before it could be interrupted")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    waited = time.monotonic() - began
    expect(process.returncode == 130, f"interrupted: exit {process.returncode}: {errors}")
    return waited, errors


def check_reading(folder, rng):
    """Ctrl-C while data is read or a tokenizer trained ends the run at once and leaves nothing."""
    text = folder.parent / "text.txt"
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 12))) for _ in range(300000)]
    text.write_text(" ".join(words * 12))
    longest = 0
    for kind, vocab_size in (("bytes", 258), ("bpe", 30000)):
        more = ["--data", text, "--set", f"tokenizer.kind={kind}", "--set"]
        more += [f"tokenizer.vocab_size={vocab_size}", "--set", "train.steps=1000000"]
        for delay in (0.0, 0.1, 0.4):
            began = time.monotonic()
            waited, errors = interrupted(
                folder,
                *more,
                ready=lambda: folder.exists() and time.monotonic() > began + delay,
            )
            longest = max(longest, waited)
            if "before a step" in errors and folder.exists():
                left = [path.name for path in folder.iterdir() if path.name != "lock"]
                expect("config.toml" in left, f"half a run was left: {left}")
            shutil.rmtree(folder, ignore_errors=True)
    expect(longest < 2, f"an interruption took {longest:.2f} s")
    return longest


def check_evaluation(folder):
    """Ctrl-C within an evaluation: it is made up for, with the bits of an undisturbed run."""
    more = ["--set", "data.eval_batches=4000", "--set", f"train.steps={STEPS}", "--set"]
    more += ["train.evaluate_every=40"]
    code, errors = finish(folder.parent / "calm", *more)
    expect(code == 0, errors)
    metrics = folder / "metrics.jsonl"
    waited, errors = interrupted(
        folder, *more, ready=lambda: metrics.exists() and '"step":40,' in metrics.read_text()
    )
    expect("step 40: stopped" in errors and "evaluation" not in errors, errors)
    expect(waited < 2, f"an evaluation was interrupted after {waited:.2f} s")
    code, errors = finish(folder, "--resume", *more)
    expect(code == 0, errors)
    expect(outcome(folder) == outcome(folder.parent / "calm"), "another outcome: evaluation")
    return waited


def check_divergence(folder):
    keys = ("learning_rate=1e30", "max_grad_norm=none", "decay=constant", "warmup_steps=0",
            "evaluate_every=1")
    code, errors = finish(folder, *(word for key in keys for word in ("--set", "train." + key)))
    named = "is not finite" in errors or "the loss is" in errors
    expect(code == 1 and named, f"diverged: {errors}")
    expect(list(folder.glob("step-*")), "nothing was saved before it diverged")


def check_force(folder):
    """Nothing is lost unless the new run can begin."""
    before = sorted(path.name for path in folder.iterdir())
    code, errors = finish(folder, "--force", "--data", "/nonexistent.txt")
    expect(code == 1 and "/nonexistent.txt" in errors, f"--force without data: {errors}")
    expect(sorted(path.name for path in folder.iterdir()) == before, "--force removed a run")
    code, errors = finish(folder, "--force", "--resume")
    expect(code == 2, f"--force and --resume: {errors}")
    code, errors = finish(folder, "--force", "--set", f"train.steps={STEPS // 2}")
    expect(code == 0 and not (folder / f"step-{STEPS:06}").exists(), f"--force: {errors}")
    code, errors = finish(folder, "--force")
    expect(code == 0, errors)


def check_refusals(folder):
    code, errors = finish(folder)
    expect(code == 2 and "--resume" in errors, f"an existing run: {errors}")
    code, errors = finish(folder, "--resume", "--set", "model.hidden_size=64")
    expect(code == 1 and "model.hidden_size" in errors, f"another model: {errors}")
    shutil.rmtree(folder)
    long_run = ["--set", "train.steps=1000000"]
    first = start(folder, *long_run)
    wait_for_metrics(folder)
    code, errors = finish(folder, "--resume", *long_run)
    first.kill()
    first.communicate()
    expect(code == 1 and "process" in errors, f"two at a time: {errors}")


def main():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        (home / "run.toml").write_text(CONFIG)
        began = time.monotonic()
        code, errors = finish(home / "whole")
        expect(code == 0, errors)
        longest = time.monotonic() - began
        expected = outcome(home / "whole")
        kills = runs = 0
        while kills < KILLS:
            kills += killed_and_resumed(home / "killed", expected, longest, rng)
            shutil.rmtree(home / "killed")
            runs += 1
        check_signal(home / "interrupted", expected, signal.SIGINT, 130)
        check_signal(home / "terminated", expected, signal.SIGTERM, 143)
        check_signal(home / "hung-up", expected, signal.SIGHUP, 129)
        reading = check_reading(home / "reading", rng)
        evaluating = check_evaluation(home / "evaluating")
        check_divergence(home / "diverged")
        check_force(home / "whole")
        check_refusals(home / "whole")
    print(
        f"{kills} kills in {runs} runs, the same bits as without; interrupted within "
        f"{1000 * reading:.0f} ms while reading, {1000 * evaluating:.0f} ms while evaluating"
    )


if __name__ == "__main__":
    main()
