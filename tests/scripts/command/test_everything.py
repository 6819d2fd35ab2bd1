"""rapt lab, and what all commands have in common."""

import json
import os
import pathlib
import tempfile
import unittest

from calls import rapt, rapt_json


class Lab(unittest.TestCase):
    def test_lists_its_experiments(self):
        done = rapt("lab", "--list")
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()],
                         ["scale", "gradients", "length", "sparsity", "positions"])

    def test_writes_a_page_and_its_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            done = rapt("lab", "positions", "--out", f"{folder}/new", "--seed", "5")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout.split(),
                             [f"{folder}/new/report.html", f"{folder}/new/report.json"])
            self.assertEqual(sorted(os.listdir(f"{folder}/new")), ["report.html", "report.json"])
            report = json.loads(pathlib.Path(folder, "new", "report.json").read_text())
            self.assertEqual(report["sections"][0]["command"], "rapt lab positions --out positions --seed 5")

    def test_refuses_before_it_works(self):
        done = rapt("lab", "weather")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("weather", done.stderr)
        with tempfile.NamedTemporaryFile() as file:
            done = rapt("lab", "--out", f"{file.name}/below")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("cannot write there", done.stderr)


class Everything(unittest.TestCase):
    def test_version(self):
        version = rapt_json("--version")["version"]
        self.assertEqual(rapt("--version").stdout.splitlines()[0], f"rapt {version}")

    def test_explain(self):
        done = rapt("explain", "--tokens", "128", "--isa", "scalar", "--threads", "3")
        self.assertEqual(done.returncode, 0)
        self.assertIn("scalar", done.stdout)
        over_cache = ("explain", "--tokens", "4096", "--queries", "1", "--cache-type", "bf16")
        self.assertIn("route     decode", rapt(*over_cache).stdout)
        self.assertIn("decode: strict is set", rapt(*over_cache, "--strict").stdout)
        self.assertEqual(rapt("explain", "--tokens", "64", "--strict").returncode, 2)

    def test_help_is_a_result(self):
        for command in ([], ["plan"], ["bench"], ["bench", "peak"], ["bench", "attention"],
                        ["bench", "rope"], ["bench", "lsh"], ["bench", "gemm"],
                        ["explain"], ["inspect"], ["train"], ["generate"], ["tokenize"]):
            done = rapt(*command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Usage", done.stdout)

    def test_wrong_usage_is_2(self):
        for arguments in ([], ["fly"], ["plan"], ["plan", "causal"], ["bench"],
                          ["plan", "causal", "--tokens", "-1"], ["plan", "causal", "--tokens", "4k"],
                          ["plan", "causal", "--tokens", "0x10"], ["plan", "causal", "--tokens", "010"],
                          ["explain", "--tokens", "8", "--scale", "fast"],
                          ["explain", "--tokens", "8", "--heads", "3", "--kv-heads", "2"],
                          ["bench", "attention", "--tokens", "8", "--bias", "fast"],
                          ["bench", "attention", "--tokens", "8", "--case", "full"],
                          ["bench", "gemm", "--rows", "0"], ["bench", "gemm", "--pass", "back"],
                          ["bench", "gemm", "--pass", "step", "--dtype", "f16"],
                          ["bench", "peak", "--isa", "fast"]):
            with self.subTest(arguments):
                done = rapt(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertNotEqual(done.stderr, "")

    def test_help_is_pointed_at_where_it_helps(self):
        self.assertIn("--help", rapt("plan", "causal", "--tokenz", "9").stderr)
        self.assertIn("--help", rapt("plan", "causal").stderr)
        self.assertNotIn("--help", rapt("plan", "causal", "--tokens", "many").stderr)

    def test_a_run_that_never_began_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for mistake in (["--data", f"{folder}/none.txt"], ["--data", "task:copy", "--set", "model.heads=7"],
                            ["--data", "task:copy", "--set", "model.vocab_size=3"],
                            ["--data", "task:copy", "--set", "train.keep_checkpoints=0"]):
                done = rapt("train", *mistake, "--out", f"{folder}/new/run")
                self.assertNotEqual(done.returncode, 0, mistake)
                self.assertEqual(os.listdir(folder), [], mistake)

    def test_wrong_environment_is_2_and_names_the_variable(self):
        for name, value in (("RAPT_THREADS", "many"), ("RAPT_THREADS", "0"), ("RAPT_ISA", "fast")):
            done = rapt("bench", "peak", **{name: value})
            self.assertEqual(done.returncode, 2)
            self.assertIn(name, done.stderr)

    def test_a_full_disk_is_1(self):
        with open("/dev/full", "w") as full:
            done = rapt("plan", "causal", "--tokens", "100", stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write", done.stderr)

    def test_a_reader_that_hangs_up_is_141_without_a_message(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = rapt("plan", "causal", "--tokens", "100000", "--columns", "100", stdout=writer)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (141, ""))
