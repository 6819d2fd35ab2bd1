#!/usr/bin/env python3
"""The rapt command and what it is given: words that make no sense, paths that are something else,
files that are damaged (numerics.md 2.5 and 2.7). One line that says what was given and what was
expected, exit code 2 for the caller's mistakes and 1 for those of files; never a crash."""

import gzip
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

import small_run

RAPT = str(pathlib.Path(sys.argv.pop(1)).resolve())
SMALL = small_run.flags("train.steps=2")
LITTLE_MEMORY = 6 << 30  # bytes of addresses


def rapt(*arguments, text=None, stdout=subprocess.PIPE, cwd=None, **environment):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (LITTLE_MEMORY, LITTLE_MEMORY))

    return subprocess.run([RAPT, *arguments], input=b"" if text is None else text, stdout=stdout,
                          stderr=subprocess.PIPE, timeout=120, preexec_fn=limit, cwd=cwd,
                          env={**os.environ, **environment})


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.text, cls.run_folder, cls.model = small_run.make(rapt, cls.path, SMALL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, code, words, *arguments, **more):
        with self.subTest(arguments=arguments):
            done = rapt(*arguments, **more)
            said = done.stderr.decode(errors="replace")
            self.assertEqual((done.returncode, done.stdout), (code, b""), said)
            self.assertIn(words, said)
            self.assertLess(len(said), 1000)
            self.assertTrue(said.startswith("rapt: ") or code == 1, said)

    def train(self, *more, data=None, out=None):
        out = self.path / "new" if out is None else out
        return ["train", "--data", data or self.text, "--out", out, *SMALL, *more]

    def generate(self, *more):
        return ["generate", self.model, "the", "--max-new-tokens", "2", *more]


class Words(Hostile):
    def test_of_usage(self):  # CL-01
        self.refused(2, '"fly" is not known here', "fly")
        self.refused(2, "--help", "generate")
        self.refused(2, "--tokens: 1 required", "plan", "causal", "--tokens")
        self.refused(2, "received 2", "plan", "causal", "--tokens", "5", "--tokens", "6")
        self.refused(2, "--resume excludes --force", *self.train("--resume", "--force"))
        self.refused(2, "is not known here", "--" + "x" * 100_000)

    def test_for_numbers(self):  # CL-02, CL-03
        for number in ("0", "-1", "1e9", "abc", " 4", "+4", "\uff14", "", "0x10", "9223372036854775808"):
            self.refused(2, f'--threads: "{number}" given, expected a whole number of at least 1',
                         *self.generate("--threads", number))
        self.refused(2, "1000000000 given, expected 1 to 1024", *self.generate("--threads", "1000000000"))
        self.refused(2, "num_beams is 100000, expected 1 to 1024", *self.generate("--num-beams", "100000"))
        for option, number, words in (("temperature", "nan", "temperature is nan, expected 0 or more"),
                                      ("temperature", "-1", "temperature is -1"),
                                      ("top-p", "0", "top_p is 0, expected more than 0"),
                                      ("top-p", "2", "top_p is 2"),
                                      ("top-k", "-5", '"-5" given, expected a whole number'),
                                      ("repetition-penalty", "inf", "repetition_penalty is inf"),
                                      ("length-penalty", "nan", '"nan" given, expected a number'),
                                      ("context-size", "0", "expected a whole number of at least 1")):
            self.refused(2, words, *self.generate(f"--{option}", number))
        self.refused(2, '"nan" given, expected a number', "convert", self.model, self.path / "c",
                     "--max-shard-size", "nan")

    def test_for_training(self):  # CL-04
        for value, code, words in (
                ("train.learning_rate=nan", 1, "train.learning_rate is nan, expected a number"),
                ("train.learning_rate=inf", 1, "train.learning_rate is inf, expected a number"),
                ("train.learning_rate=-1", 2, "learning_rate is -1"),
                ("data.batch_size=0", 2, "batch_size is 0, expected at least 1"),
                ("train.steps=0", 2, "train.steps is 0, expected at least 1"),
                ("data.tokens=0", 2, "tokens is 0, expected at least 1"),
                ("train.steps=4k", 1, 'train.steps is "4k", expected a whole number'),
                ("train.steps=9223372036854775808", 1, "expected a whole number"),
                ("train.stepz=3", 1, "unknown key `train.stepz`, did you mean `train.steps`?"),
                ("model.width=64", 1, "the key `model.width` is called `model.hidden_size` now"),
                ("train.evaluate_every=0", 2, 'train.evaluate_every is 0, expected at least 1, or "none"'),
                ("model.kind=coder", 1, 'model.kind is "coder", expected decoder, encoder or encoder_decoder'),
                ("nosection=3", 2, "expected section.key=value"),
                ("model.heads=0", 2, "heads is 0, expected at least 1"),
                ("model.layers=1000000000000", 2, "1000000000000 layers, expected at most 65536"),
                ("model.hidden_size=1000000", 2, "GB of memory"),
                ('model.patterns=["causal & & x"]', 2, "column 10")):
            self.refused(code, words, *self.train("--set", value))
            self.assertFalse((self.path / "new").exists())
        config = self.path / "odd.toml"
        config.write_text("train = 5\n")
        self.refused(2, "train is 5 in the file, expected a section", *self.train("--config", config))

    def test_in_the_environment(self):  # CL-11, CL-12
        want = rapt(*self.generate()).stdout
        for name, value in (("LC_ALL", "de_DE.UTF-8"), ("HOME", ""), ("TZ", "no:zone::"), ("PATH", ""),
                            ("OMP_NUM_THREADS", "-5")):
            self.assertEqual(rapt(*self.generate(), **{name: value}).stdout, want, name)
        self.refused(2, 'RAPT_ISA: instruction set "neon2" is not available here, expected one of',
                     *self.generate(), RAPT_ISA="neon2")

    def test_that_are_many(self):  # CL-10
        self.refused(2, "100000 texts, expected one", "tokenize", self.model, *["w"] * 100_000)
        self.refused(2, "received 50000", "plan", "causal", *["--tokens", "5"] * 50_000)


class Paths(Hostile):
    def test_to_write_to(self):  # CL-05
        self.refused(1, "Not a directory", *self.train(out=self.text))
        self.refused(2, "the run has no folder", *self.train(out=""))
        for out, what in ((self.text, "is a file"), (self.model, "is not empty"), ("", "has no name")):
            self.refused(2, f"{what}, expected a new or empty folder", "convert", self.model, out)
        self.refused(1, f"cannot be made, {self.text} is a file", "convert", self.model, self.text / "x")

    def test_of_a_run_within_its_data(self):  # CL-05
        data = self.path / "data"
        data.mkdir()
        shutil.copy(self.text, data)
        for out in (data, data / "run", data / "a" / ".." / "run"):
            self.refused(2, "is inside its data", *self.train(data=data, out=out))
        self.refused(2, "is inside its data", *self.train(data=".", out="run"), cwd=data)
        self.assertEqual(os.listdir(data), ["text.txt"])
        for out in (data / ".run", self.path / "data-run", "beside", "data/../above"):
            done = rapt(*self.train(data=data, out=out), cwd=self.path)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_to_go_on_from(self):  # CL-06
        empty = self.path / "empty"
        empty.mkdir()
        for folder in (empty, self.path / "nowhere", self.model):
            self.refused(1, f"{folder} holds no run to resume; beside it there are", "train", "--resume",
                         "--out", folder)

    def test_that_are_no_models(self):  # ST-31, ST-35
        pipe = self.path / "pipe"
        os.mkfifo(pipe)
        for command in ("generate", "inspect", "embed", "tokenize"):
            self.refused(1, "is a pipe, expected a regular file", command, pipe, *["x"][command == "inspect":])
            self.refused(1, "is a device", command, "/dev/zero", *["x"][command == "inspect":])
        self.refused(1, "is a pipe", *self.train("--config", pipe))
        self.refused(1, "neither a file nor a folder", *self.train(data="/dev/zero"))
        self.refused(1, "holds weights alone", "inspect", self.model / "model.safetensors")
        self.refused(1, 'begins with "the "', "generate", self.text, "x")
        self.refused(1, r'model "\u001b[31mx": no such file', "generate", "\x1b[31mx", "x")

    def test_that_do_not_end(self):
        self.refused(2, "more than 2^30 bytes", "heads", self.run_folder, "--text", "/dev/zero")


class Streams(Hostile):
    def test_of_prompts(self):  # CL-07
        for text in (b"", b"\xff\x00\xfe", b"a\r\n"):
            done = rapt("generate", self.model, "--max-new-tokens", "2", text=text)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
        closed = subprocess.run(["sh", "-c", '"$0" generate "$1" --max-new-tokens 2 <&-', RAPT, self.model],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((closed.returncode, closed.stderr), (0, b""))
        for size in (64, 1_000_000):
            self.refused(2, f"prompt 1 of 1 has {size} tokens, expected fewer than the 64 of the context",
                         "generate", self.model, text=b"x" * size)

    def test_that_are_full_or_hung_up(self):  # CL-08, CL-09
        for arguments in (self.generate(), ["tokenize", self.model, "a"], ["inspect", self.model]):
            with open("/dev/full", "w") as full:
                done = rapt(*arguments, stdout=full)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"cannot write the result: No space left", done.stderr)
            reader, writer = os.pipe()
            os.close(reader)
            done = rapt(*arguments, stdout=writer)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (141, b""), arguments)


class Runs(Hostile):
    def copy(self):
        folder = self.path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.run_folder, folder)
        return folder

    def test_with_data_that_is_no_text(self):  # CO-01, CO-08, CO-09
        file = self.path / "file"
        pairs = ["--set", "data.objective=pairs", "--set", "model.kind=encoder_decoder", "--set",
                 "model.encoder_layers=1"]
        for content, words, more in (
                (b"", "gives 0 tokens for training, expected at least 17", []),
                (b"x", "expected at least 17", []),
                (gzip.compress(self.text.read_bytes()), "is packed by gzip, expected text", []),
                (b"a\tb\nno tab\n", "line 2 has 0 tabs, expected one", pairs),
                (b"a\tb\n\tc\n", "line 2 has an empty source or target", pairs),
                (b"a\tb\n" * 50, "all have one source", pairs),
                (b"x" * (17 << 20), "line 1 is longer than 16777216 bytes", pairs)):
            file.write_bytes(content)
            self.refused(1, words, *self.train(*more, data=file))
            self.assertFalse((self.path / "new").exists())

    def test_whose_metrics_cannot_be_written(self):  # CO-14
        out = self.path / "unwritable"
        (out / "metrics.jsonl").mkdir(parents=True)
        self.refused(2, "holds no run, but a metrics.jsonl", *self.train(out=out))
        (out / "lock").touch()
        self.refused(1, "metrics.jsonl: cannot be opened: Is a directory", *self.train(out=out))

    def test_that_are_damaged(self):  # CO-11
        step = "step-000002"
        for name in os.listdir(self.run_folder / step):
            folder = self.copy()
            content = bytearray((folder / step / name).read_bytes())
            content[len(content) // 2] ^= 1
            (folder / step / name).write_bytes(content)
            self.refused(1, "checkpoint of step 2 is damaged and passed over", "train", "--resume",
                         "--out", folder)
            self.refused(1, "checkpoint of step 2 is damaged", "generate", folder, "x")
            done = rapt("inspect", folder)
            self.assertEqual(done.returncode, 0)
            self.assertIn(b"checkpoint of step 2 is damaged", done.stderr)

    def test_of_another_model(self):  # CO-12
        folder = self.copy()
        config = (folder / "config.toml").read_text().split("\n", 1)[1]  # without its hash
        (folder / "config.toml").write_text(config.replace("hidden_size = 16", "hidden_size = 32"))
        for command in (["train", "--resume", "--out", folder], ["generate", folder, "x"]):
            self.refused(1, "it is of another model than config.toml describes", *command)
        for content, words in ((b"[[[[", "is no TOML"), (b"\0\xff", "invalid utf-8"),
                               (b"model = 3", "model is 3, expected an object")):
            (folder / "config.toml").write_bytes(content)
            self.refused(1, words, "generate", folder, "x")
            self.refused(1, words, "inspect", folder)

    def test_without_their_tokenizer(self):
        folder = self.copy()
        for content in (b"{}", b""):
            (folder / "tokenizer.json").write_bytes(content)
            self.refused(1, "tokenizer.json: does not match the hash in the checkpoint of step 2",
                         "generate", folder, "x")
        (folder / "tokenizer.json").unlink()
        self.refused(1, "tokenizer.json: cannot be opened", "train", "--resume", "--out", folder)


unittest.main()
