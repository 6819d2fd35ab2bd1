"""rapt inspect and rapt heads."""

import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from calls import EXAMPLE, RAPT, ROOT, rapt, rapt_json


class Inspect(unittest.TestCase):
    def test_shows_every_shape_of_the_worked_example(self):
        done = rapt("inspect", EXAMPLE, "--batch", "32", "--tokens", "2048")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("109,274,112", "50,439,168", "58,834,944", "4,203,264", "7,354,368",
                     "3,149,056", "1,050,112", "2,048", "layers 0-11, each", "layers 0-7, each",
                     "[32, 2048, 1024]", "[32, 4, 2048, 192]", "[32, 4, 2048, 2048]",
                     "[2304, 1024]", "[1024, 768]", "[512, 1024]", "[1024, 512]", "never stored"):
            self.assertIn(text, done.stdout)

    def test_json_adds_up(self):
        model = rapt_json("inspect", EXAMPLE, "--batch", "2", "--tokens", "64")
        self.assertEqual(model["parameters"], 109_274_112)
        self.assertEqual(model["weight_bytes"], 4 * model["parameters"])
        for depth in (1, 2):
            parts = [line for line in model["lines"] if line["depth"] == depth]
            self.assertEqual(sum(line["repeats"] * line["parameters"] for line in parts),
                             model["parameters"])
        kept = [model[key]["kept"] for key in ("activation_bytes", "recomputed_activation_bytes")]
        self.assertGreater(kept[0], 4 * kept[1])

    def test_shows_how_a_run_stands(self):
        with tempfile.TemporaryDirectory() as folder:
            done = rapt("train", "--data", "task:sort", "--out", folder, "--set", "train.steps=2",
                        "--set", "data.tokens=16", "--set", "data.eval_batches=1",
                        "--set", "model.hidden_size=16", "--set", "model.layers=1",
                        "--set", "train.log_every=1")
            self.assertEqual(done.returncode, 0, done.stderr)
            run = rapt_json("inspect", folder)["run"]
            self.assertEqual((run["step"], run["saved_step"]), (2, 2))
            self.assertTrue(0 < run["loss"] < 10)
            self.assertIn("none", run["tokenizer"])
            self.assertIn("saved at 2", rapt("inspect", folder).stdout)

    def test_refuses_what_is_no_model(self):
        for arguments in (["inspect"], ["inspect", "nowhere.toml"],
                          ["inspect", EXAMPLE, "--batch", "0"],
                          ["inspect", EXAMPLE, "--set", "model.heads=0"]):
            with self.subTest(arguments):
                self.assertEqual((rapt(*arguments).returncode, rapt(*arguments).stdout), (2, ""))


class Heads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        (cls.path / "text.txt").write_text("A text, and some more of it.\n" * 8)
        (cls.path / "empty.txt").write_text(" \n")
        (cls.path / "ids.txt").write_text(" ".join(str(i % 10) for i in range(30)))
        small = ["--set", "train.steps=2", "--set", "data.eval_batches=1", "--set", "model.hidden_size=16",
                 "--set", "model.layers=2", "--set", "model.heads=2", "--set", "data.tokens=16"]
        for name, data in (("run", str(ROOT / "docs")), ("task", "task:sort")):
            done = rapt("train", "--data", data, "--out", str(cls.path / name), *small)
            assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def heads(self, run, *arguments):
        return rapt("heads", str(self.path / run), *arguments)

    def test_reports_on_every_head(self):
        done = self.heads("run", "--text", str(self.path / "text.txt"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("2 layers of 2 heads on", "window of", "loss", "- Of 4 heads"):
            self.assertIn(text, done.stdout)

    def test_json_has_a_row_for_every_head(self):
        report = rapt_json("heads", str(self.path / "run"), "--text", str(self.path / "text.txt"),
                           "--limit", "100")
        self.assertEqual([(h["layer"], h["head"]) for h in report["heads"]],
                         [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertEqual(report["tokens"], 100)
        self.assertEqual("".join(report["texts"]), ("A text, and some more of it.\n" * 8)[:100])
        for head in report["heads"]:
            self.assertAlmostEqual(head["within"][-1], 1, places=4)
            self.assertTrue(head["reach50"] <= head["reach90"] <= head["reach99"])
        self.assertTrue(all(0 < trial["pairs"] < 1 for trial in report["trials"]))

    def test_reads_ids_where_there_is_no_tokenizer(self):
        done = self.heads("task", "--ids", str(self.path / "ids.txt"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("on 30 tokens", done.stdout)

    def test_reads_standard_input(self):
        with open(self.path / "text.txt") as text:
            done = subprocess.run([RAPT, "heads", str(self.path / "run"), "--text", "-"], stdin=text,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_refuses_bytes_that_are_no_text(self):
        path = self.path / "bytes.txt"
        for content, words in ((b"GGUF\3\0\0\0", "byte 5 is 0x00"),
                               (b"na\xefve", "byte 2 is 0xef"),
                               (b"cut \xe6\x97", "byte 4 is 0xe6"),
                               (b"half a pair \xed\xa0\x80", "byte 12 is 0xed"),
                               (b"\xc0\x80", "byte 0 is 0xc0"),
                               (b"beyond \xf4\x90\x80\x80", "byte 7 is 0xf4")):
            with self.subTest(content):
                path.write_bytes(content)
                done = self.heads("run", "--text", str(path))
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(f"is no text: {words}, expected UTF-8", done.stderr)
        path.write_text("na\u00efve \u65e5\u672c \U0001F600 text\n" * 4)
        self.assertEqual(self.heads("run", "--text", str(path)).returncode, 0)

    def test_says_what_is_wrong(self):
        text, ids = str(self.path / "text.txt"), str(self.path / "ids.txt")
        for run, arguments, words in (
                ("run", ["--text", str(self.path / "nowhere.txt")], "cannot be read"),
                ("run", ["--text", str(self.path)], "cannot be read"),
                ("run", ["--text", str(self.path / "empty.txt")], "is empty"),
                ("run", ["--ids", str(self.path / "empty.txt")], "is empty"),
                ("run", ["--text", text, "--ids", ids], "one of them"),
                ("run", ["--ids", text], "expected ids only"),
                ("run", ["--text", text, "--target", text], "no encoder-decoder"),
                ("run", ["--html", "page.html"], "--text"),
                ("run", ["--limit", "5"], "--text"),
                ("task", ["--text", text], "no tokenizer")):
            with self.subTest(arguments):
                done = self.heads(run, *arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        done = self.heads("run", "--text", text, "--limit", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("at least 2", done.stderr)
        done = rapt("heads", EXAMPLE, "--text", text)
        self.assertEqual(done.returncode, 2)
        self.assertIn("without weights", done.stderr)
        for option in ("--text", "--ids", "--html", "--limit", "--target"):
            done = rapt("inspect", str(self.path / "run"), option, text)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f'"{option}" is not known here; did you mean rapt heads MODEL', done.stderr)

    def test_writes_a_page_or_says_why_not(self):
        page = self.path / "page.html"
        text = str(self.path / "text.txt")
        done = self.heads("run", "--text", text, "--html", str(page), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(str(page), done.stderr)
        self.assertEqual(json.loads(done.stdout)["heads_per_layer"], 2)
        self.assertIn("What the heads do", page.read_text())
        done = self.heads("run", "--text", text, "--html", "/nowhere/page.html")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere", done.stderr)
        done = self.heads("run", "--text", text, "--html", str(self.path))
        self.assertEqual(done.returncode, 1)

    def test_ends_on_ctrl_c(self):
        long = self.path / "long.txt"
        long.write_text("A text, and some more of it.\n" * 1600)
        command = [RAPT, "heads", str(self.path / "run"), "--text", str(long), "--limit", "44000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
            time.sleep(1.5)
            work.send_signal(signal.SIGINT)
            out, error = work.communicate(timeout=60)
        self.assertEqual((work.returncode, out), (130, ""), error)
