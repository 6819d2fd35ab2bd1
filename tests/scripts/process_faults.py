#!/usr/bin/env python3
"""The rapt command in a process that lacks something: streams that are full, closed or hung up,
signals, little memory, short files, and paths that are links or pipes. No run is lost, no file gets
bytes that are not its own, nothing hangs, and no signal ends it but the one that was sent.

usage: process_faults.py RAPT
"""

import fcntl
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import small_run

RAPT = str(pathlib.Path(sys.argv.pop(1)).resolve())
STEPS = 12
SMALL = small_run.flags(f"train.steps={STEPS}", "train.log_every=1", "train.save_every=4",
                        "data.batch_size=2")
FOREIGN = b"bytes of another program\n"


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.home = pathlib.Path(cls.folder.name)
        cls.text, cls.whole, cls.model = small_run.make(cls.rapt, cls.home, SMALL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.run = self.home / "run"
        shutil.rmtree(self.run, ignore_errors=True)

    @classmethod
    def rapt(cls, *arguments, limits=(), **more):
        def set_limits():
            for kind, size in limits:
                resource.setrlimit(kind, (size, size))

        return subprocess.run([RAPT, *arguments], stdin=subprocess.DEVNULL, timeout=120,
                              preexec_fn=set_limits,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})

    @classmethod
    def train(cls, out, *more):
        return ["train", "--data", cls.text, "--out", out, *SMALL, *more]

    def shell(self, redirections, *arguments):
        """The command behind a shell's redirections; its exit code. `timeout` ends the shell's children
        too: otherwise they would hold the pipes that run() reads to the end."""
        return subprocess.run(["timeout", "--signal=KILL", "120", "bash", "-c",
                               f'"$@" {redirections}; exit ${{PIPESTATUS[0]}}', "sh", RAPT, *arguments],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def outcome(self, folder):
        """Metrics without how fast it was, and all numbers. Every line is one that rapt wrote."""
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line in lines:
            line.pop("tokens_per_second", None)
            line.pop("of_peak", None)
        tensors = sorted((folder / f"step-{STEPS:06}").glob("*.safetensors"))
        return lines, [tensor.read_bytes() for tensor in tensors]

    def expect_whole(self, folder, what):
        self.assertEqual(self.outcome(folder), self.outcome(self.whole), what)
        self.assertRegex((folder / "lock").read_text(), r"^\d+\n$")
        self.assertTrue((folder / "config.toml").read_text().startswith("# Written by rapt"))

    def refused(self, words, *arguments, code=1, **more):
        done = self.rapt(*arguments, **more)
        said = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, code, said)
        self.assertIn(words, said)


class Streams(Faults):
    def test_that_nobody_reads_do_not_end_a_run(self):
        for redirections in ("2>/dev/full", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>&1 | true",
                             "2>&1 | head -n 1"):
            with self.subTest(redirections):
                shutil.rmtree(self.run, ignore_errors=True)
                done = self.shell(redirections, *self.train(self.run))
                self.assertEqual(done.returncode, 0)
                self.expect_whole(self.run, redirections)

    def test_of_messages_change_no_exit_code(self):
        for redirections in ("2>/dev/full", "2>&-", "2> >(true)"):
            with self.subTest(redirections):
                shutil.rmtree(self.home / "made", ignore_errors=True)
                for code, arguments in ((0, ["convert", self.model, self.home / "made"]),
                                        (0, ["generate", self.model, "the", "--max-new-tokens", "2"]),
                                        (0, ["inspect", self.model]), (2, ["fly"]), (2, []),
                                        (1, ["generate", self.home / "none", "x"])):
                    done = self.shell(redirections, *arguments)
                    self.assertEqual(done.returncode, code, (arguments, done.stderr))
                self.assertEqual(sorted(path.name for path in (self.home / "made").iterdir()),
                                 sorted(path.name for path in self.model.iterdir()))

    def test_that_lose_a_result_are_a_failure(self):
        for arguments in (["generate", self.model, "the", "--max-new-tokens", "2"], ["inspect", self.model],
                          ["plan", "causal", "--tokens", "100"], ["--help"]):
            with self.subTest(arguments):
                for redirections, code in ((">/dev/full", 1), (">&-", 1), (">/dev/full 2>&-", 1)):
                    self.assertEqual(self.shell(redirections, *arguments).returncode, code)
                self.assertIn(b"cannot write", self.shell(">&-", *arguments).stderr)
                reader, writer = os.pipe()
                os.close(reader)
                done = self.rapt(*arguments, stdout=writer)
                os.close(writer)
                self.assertEqual((done.returncode, done.stderr), (141, b""))


class Signals(Faults):
    def begin(self, hangup, *more):
        """A run that has logged a step. Its caller handles SIGHUP as `hangup` says: the parent of the tests may ignore it."""
        process = subprocess.Popen([RAPT, *self.train(self.run, *more)], stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, hangup))
        self.addCleanup(process.kill)
        metrics = self.run / "metrics.jsonl"
        while not metrics.exists() or not metrics.read_text():
            self.assertIsNone(process.poll(), "the run has ended before its first step")
            time.sleep(0.002)
        return process

    def test_of_a_terminal_that_goes_away_save(self):
        process = self.begin(signal.SIG_DFL, "--set", "train.steps=1000000", "--set",
                             "train.save_every=none")
        for _ in range(2):  # the kernel sends one, and the shell another
            process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 129, errors)
        steps = [int(path.name[5:]) for path in self.run.glob("step-*")]
        self.assertEqual(len(steps), 1, errors)
        lines = (self.run / "metrics.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(lines[-1])["step"], steps[0])

    def test_that_the_caller_ignores_stay_ignored(self):
        process = self.begin(signal.SIG_IGN, "--set", "train.steps=300")
        process.send_signal(signal.SIGHUP)
        _, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)


class Limits(Faults):
    def test_of_memory_end_in_a_message_or_not_at_all(self):
        """Down to where not even the loader has enough. Threads are where it used to hang, and to
        abort: all start at once, or the command ends with a message that counts them."""
        codes, too_few = set(), 0
        for size in range(18_000, 62_000, 1_000):
            for threads in ("2", "5", "9"):
                shutil.rmtree(self.run, ignore_errors=True)
                for arguments in (self.train(self.run), ["generate", self.model, "the", "--max-new-tokens", "4"],
                                  ["bench", "attention", "--tokens", "128"]):
                    done = self.rapt(*arguments, "--threads", threads,
                                     limits=[(resource.RLIMIT_AS, size << 10)])
                    said = done.stderr.decode()
                    self.assertIn(done.returncode, (0, 1, 127), (size, threads, arguments, said))
                    if done.returncode == 1:
                        self.assertRegex(said, r"rapt: (threads: only \d of \d start|not enough memory)")
                        self.assertEqual(said.count("rapt: "), 1, said)
                    codes.add(done.returncode)
                    too_few += "threads: only" in said
                    if done.returncode == 0 and arguments[0] == "train":
                        self.expect_whole(self.run, size)
        self.assertLessEqual({0, 1}, codes)
        self.assertGreater(too_few, 0)

    def test_of_file_sizes_end_in_a_message(self):
        done = self.rapt(*self.train(self.run), limits=[(resource.RLIMIT_FSIZE, 8000)],
                         restore_signals=False)
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 1, said)
        self.assertIn("step 4 is not saved", said)
        self.assertIn("ends after 3 failed saves in a row", said)
        self.assertIn("File too large", said)
        self.assertEqual(self.rapt(*self.train(self.run, "--resume")).returncode, 0)
        self.expect_whole(self.run, "after the limit")

    def test_of_file_sizes_end_a_long_run(self):
        done = self.rapt(*self.train(self.run, "--set", "train.steps=1000000", "--set",
                                     "train.log_every=1000000"),
                         limits=[(resource.RLIMIT_FSIZE, 8000)])
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 1, said)
        self.assertIn("3 saves in a row have failed, the last one at step 12", said)


class Paths(Faults):
    def copy(self):
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.whole, self.run)
        shutil.rmtree(self.run / f"step-{STEPS:06}")
        return self.run

    def test_of_a_run_are_never_followed_elsewhere(self):
        for name in ("lock", "metrics.jsonl", "config.toml", "tokenizer.json"):
            for link in (os.symlink, os.link):
                with self.subTest(name=name, link=link.__name__):
                    self.copy()
                    other = self.home / "other"
                    other.unlink(missing_ok=True)
                    before = (self.run / name).read_bytes()
                    other.write_bytes(before)
                    (self.run / name).unlink()
                    link(other, self.run / name)
                    done = self.rapt(*self.train(self.run, "--resume"))
                    self.assertIn(done.returncode, (0, 1), done.stderr)
                    self.assertEqual(other.read_bytes(), before)
                    if done.returncode == 1:
                        self.assertIn(f"{name}: is a symbolic link".encode(), done.stderr)

    def test_to_a_lock_of_others_are_refused(self):
        self.copy()
        (self.run / "lock").write_bytes(FOREIGN)
        self.refused("is no lock of rapt", *self.train(self.run, "--resume"))
        self.assertEqual((self.run / "lock").read_bytes(), FOREIGN)

    def test_that_are_pipes_do_not_hang(self):
        for name in ("lock", "metrics.jsonl", "config.toml", "tokenizer.json",
                     "step-000008/manifest.json"):
            with self.subTest(name):
                self.copy()
                (self.run / name).unlink()
                os.mkfifo(self.run / name)
                self.refused("is a pipe", *self.train(self.run, "--resume"))
                if name != "lock":
                    self.refused("is a pipe", "train", "--resume", "--out", self.run)
                done = self.rapt("inspect", self.run)
                self.assertIn(done.returncode, (0, 1), done.stderr)
        for path in sorted(self.model.iterdir()):
            with self.subTest(path.name):
                copy = self.home / "pipes"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(self.model, copy)
                (copy / path.name).unlink()
                os.mkfifo(copy / path.name)
                for command in (["generate", copy, "the", "--max-new-tokens", "2"], ["inspect", copy],
                                ["tokenize", copy, "the"], ["embed", copy, "the"]):
                    self.assertIn(self.rapt(*command).returncode, (0, 1), command)

    def test_to_streams_of_text_still_work(self):
        done = self.shell("--text <(echo the cat sat)", "heads", self.whole)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_to_files_of_others_are_not_written_over(self):
        config = self.home / "empty.toml"
        config.write_text("")
        for name in ("config.toml", "tokenizer.json", "metrics.jsonl"):
            for more in ([], ["--resume"]):
                with self.subTest(name=name, more=more):
                    shutil.rmtree(self.run, ignore_errors=True)
                    self.run.mkdir()
                    (self.run / name).write_bytes(FOREIGN)
                    for _ in range(2):  # the first leaves nothing that lets the second pass
                        self.refused(f"holds no run, but a {name} that training would overwrite; "
                                     "--force overwrites it, --out names another folder",
                                     *self.train(self.run, "--config", config, *more), code=2)
                    self.assertEqual(os.listdir(self.run), [name])
                    self.assertEqual((self.run / name).read_bytes(), FOREIGN)
        done = self.rapt(*self.train(self.run, "--force"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_whole(self.run, "--force")

    def test_of_a_run_that_does_not_begin_are_taken_away(self):
        self.run.mkdir()
        done = self.rapt("train", "--data", self.home / "none.txt", "--out", self.run)
        self.assertEqual((done.returncode, os.listdir(self.run)), (1, []))

    def test_of_the_dead_are_swept(self):
        self.copy()
        ours = ["metrics.jsonl.tmp.12", "config.toml.tmp.999999", "tokenizer.json.tmp.3"]
        others = ["metrics.jsonl.tmp.mine", "notes.tmp.12", "config.toml.tmp."]
        for name in ours + others:
            (self.run / name).write_bytes(FOREIGN)
        done = self.rapt(*self.train(self.run, "--resume"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in self.run.glob("*.tmp.*")), sorted(others))
        self.expect_whole(self.run, "swept")

    def test_of_killed_conversions_are_swept_by_the_next(self):
        """Those of the dead only: what has no lock of rapt, or one that is held, stays."""
        out = self.home / "out"

        def part(letters, lock=None):
            folder = self.home / f"out.part-{letters}"
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(FOREIGN)
            if lock is not None:
                (folder / ".rapt-unfinished").write_bytes(lock)
            return folder

        dead = [part("dead01", b"12\n"), part("dead02", b"999999999\n")]
        others = [part("backup"), part("empty1", b""), part("notes1", FOREIGN), part("long-one", b"12\n")]
        held = part("alive1", b"12\n")
        holder = open(held / ".rapt-unfinished", "r+")
        fcntl.flock(holder, fcntl.LOCK_EX)
        link = self.home / "out.part-link01"
        link.symlink_to(part("target-of-link", b"12\n"))
        done = self.rapt("convert", self.whole, out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         sorted(path.name for path in self.model.iterdir()))
        self.assertEqual([path for path in dead if path.exists()], [])
        for folder in (*others, held, link):
            self.assertEqual((folder / "model.safetensors").read_bytes(), FOREIGN)
        holder.close()
        shutil.rmtree(out)
        self.assertEqual(self.rapt("convert", self.whole, out).returncode, 0)
        self.assertFalse(held.exists())

    def test_of_a_killed_conversion_do_not_stay(self):
        out = self.home / "converted"
        before = set(os.listdir(self.home))
        for _ in range(200):
            shutil.rmtree(out, ignore_errors=True)
            process = subprocess.Popen([RAPT, "convert", self.whole, out], stderr=subprocess.DEVNULL)
            while process.poll() is None and not list(self.home.glob("converted.part-*/*")):
                pass
            process.kill()
            if process.wait() == -signal.SIGKILL and list(self.home.glob("converted.part-*/*")):
                break
        else:
            self.fail("no conversion was caught half way")
        shutil.rmtree(out, ignore_errors=True)
        self.assertEqual(self.rapt("convert", self.whole, out).returncode, 0)
        self.assertEqual(set(os.listdir(self.home)) - before, {"converted"})

    def test_of_pages_keep_files_beside_them(self):
        page, beside = self.home / "page.html", self.home / "page.html.part"
        beside.write_bytes(FOREIGN)
        done = self.rapt("heads", self.whole, "--text", self.text, "--limit", "32", "--html", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(beside.read_bytes(), FOREIGN)
        self.assertEqual([path for path in self.home.glob("page.html*")
                          if path not in (page, beside)], [])


class Contents(Faults):
    def test_that_changed_are_refused(self):
        shutil.copytree(self.whole, self.run)
        tokenizer = self.run / "tokenizer.json"
        text = tokenizer.read_text()
        tokenizer.write_text(re.sub(r'"([ab])":(\s*)(\d+)', lambda m: f'"{"ab"[m[1] == "a"]}":'
                                    f"{m[2]}{m[3]}", text))
        self.assertNotEqual(tokenizer.read_text(), text)
        words = "tokenizer.json: does not match the hash in the checkpoint of step 12"
        self.refused(words, "generate", self.run, "x")
        self.refused(words, *self.train(self.run, "--resume", "--set", "train.steps=20"))
        self.assertIn(words.encode(), self.rapt("inspect", self.run).stderr)
        tokenizer.write_text(text)
        config = self.run / "config.toml"
        text = config.read_text()
        config.write_text(text.replace("beta1 = 0.9", "beta1 = 0.8"))
        words = "config.toml: does not match the hash in its first line"
        self.refused(words, "generate", self.run, "x")
        self.refused(words, "train", "--resume", "--out", self.run)
        config.write_text(config.read_text().split("\n", 1)[1])  # it was meant
        self.assertEqual(self.rapt("generate", self.run, "x", "--max-new-tokens", "2").returncode, 0)

    def test_of_a_config_are_bounded_before_they_are_read(self):
        config = self.home / "deep.toml"
        for text in ("a" + ".b" * 40_000 + " = 1\n", "[" + "a." * 40_000 + "b]\nc = 1\n",
                     "a = " + "{b.c = " * 20_000 + "1" + "}" * 20_000,
                     "a = " + "[" * 40_000 + "]" * 40_000):
            config.write_text(text)
            self.refused("nested deeper than 64", *self.train(self.run, "--config", config))
            self.refused("nested deeper than 64", "inspect", config)

    def test_that_no_memory_holds_are_refused_at_once(self):
        for key in ("data.batch_size=100000000", "data.tokens=2000000000"):
            began = time.monotonic()
            self.refused("GB of memory", *self.train(self.run, "--set", key, "--set",
                                                     "data.batch_size=1" if "tokens" in key else key,
                                                     "--set", "model.max_positions=64"), code=2)
            self.assertLess(time.monotonic() - began, 10)


unittest.main()
