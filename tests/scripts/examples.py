#!/usr/bin/env python3
"""Every example runs and prints what it promises; an example that no test runs is a mistake.

    examples.py FOLDER_OF_PROGRAMS RAPT

Those of Python that need the module run in tests/python and tests/oracles, in test_examples.py.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import example_models
import small_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS, RAPT = (pathlib.Path(given).resolve() for given in sys.argv[1:3])
del sys.argv[1:3]
# Steps that take a moment; what is trained does not matter here.
SHORT = [word for key in ("train.steps=2", "train.warmup_steps=0", "data.eval_batches=1", "data.batch_size=2")
         for word in ("--set", key)]


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_in_folder(self, *command, given="", code=0):
        done = subprocess.run([str(word) for word in command], input=given, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.folder, timeout=300)
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout}{done.stderr}")
        return done

    def program(self, source, *arguments, **how):
        self.assertTrue((EXAMPLES / source).exists())
        return self.run_in_folder(PROGRAMS / f"example_{pathlib.Path(source).stem}", *arguments, **how)

    def rapt(self, *arguments):
        return self.run_in_folder(RAPT, *arguments)

    def train(self, config, data):
        return self.rapt("train", "--config", EXAMPLES / config, "--data", data, "--out", "run", *SHORT)

    def test_causal(self):
        forward, decoded = self.program("causal.cpp").stdout.splitlines()
        self.assertEqual(forward.split("out ")[1].split(",")[0], decoded.split("out ")[1])

    def test_cache_decode(self):
        prompt, decoded, fork = self.program("cache_decode.cpp").stdout.splitlines()
        self.assertEqual(prompt, "prompt: 1000 tokens in 16 pages, 1024 KiB")
        self.assertIn("decoded 30 tokens; largest difference from one pass over all 1030: ", decoded)
        self.assertIn("after the fork: 17 pages; after a token for each: 18 pages", fork)

    def test_own_pattern(self):
        lines = self.program("own_pattern.cpp").stdout.splitlines()
        self.assertEqual(lines[0], "causal & documents({1200, 800}) & (window(127, 0) | tokens({0, 1200}))")
        self.assertTrue(all(set(line) <= set("█▒·") for line in lines[1:-2]))
        self.assertTrue(lines[-2].startswith("241488 of 4000000 pairs"))
        self.assertTrue(lines[-1].startswith("largest difference from the dense mask: out "))

    def test_train(self):
        lines = self.program("train.cpp").stdout.splitlines()
        self.assertTrue(lines[0].startswith("step 20: loss "))
        self.assertIn("sees the h", lines[-1])

    def test_gguf_chat(self):
        example_models.write_chat(self.folder / "chat.gguf", "Olá!")
        done = self.program("gguf_chat.cpp", "chat.gguf", "How are you?")
        self.assertEqual((done.stdout, done.stderr), ("Olá!\n", "[5 tokens, finish reason eos]\n"))
        self.assertEqual(self.program("gguf_chat.cpp", "chat.gguf", given="One?\nTwo?\n").stdout, "Olá!\nOlá!\n")

    def test_gguf_chat_continues_texts_with_a_model_that_has_no_template(self):
        _, _, model = small_run.make(lambda *arguments: self.rapt(*arguments), self.folder,
                                     small_run.flags("train.steps=5"))
        done = self.program("gguf_chat.cpp", model, "the cat")
        self.assertIn(", finish reason ", done.stderr)

    def test_embeddings(self):
        texts = ["stocks fell on monday", "the cat sleeps on a mat", "rain is expected"]
        query = "where the cat sleeps"
        words = sorted({word for text in (query, *texts) for word in text.split()})
        example_models.write_sentence_model(self.folder / "bert", words)
        lines = self.program("embeddings.cpp", "bert", query, *texts).stdout.splitlines()
        self.assertEqual(lines[:2], ["bert, vectors of 32 numbers", query])
        self.assertTrue(lines[2].endswith(f"  {texts[1]}"), lines)
        self.assertEqual(len(lines), 5)
        self.assertEqual(len(self.program("embeddings.cpp", "bert").stdout.splitlines()), 6)

    def test_programs_that_take_a_model_say_what_is_missing(self):
        for source in ("gguf_chat.cpp", "embeddings.cpp"):
            self.assertIn("usage: ", self.program(source, code=2).stderr)
            self.assertIn("nowhere.gguf", self.program(source, "nowhere.gguf", code=1).stderr)

    def test_digits(self):
        done = self.run_in_folder(sys.executable, EXAMPLES / "digits_to_words.py", "digits")
        self.assertIn("8000 pairs in digits/train.tsv", done.stdout)
        self.train("digits.toml", "digits/train.tsv")

    def test_configs(self):
        self.assertIn("109,274,112", self.rapt("inspect", EXAMPLES / "encoder-decoder.toml").stdout)
        self.train("text.toml", ROOT / "docs")

    def test_tasks(self):
        self.train("copy.toml", "task:copy")
        (self.folder / "run").rename(self.folder / "copy")
        self.train("recall.toml", "task:recall")

    def test_every_example_is_run(self):
        others = [ROOT / "tests" / folder / "test_examples.py" for folder in ("python", "oracles")]
        text = "".join(path.read_text() for path in (pathlib.Path(__file__), *others))
        shown = (EXAMPLES / "README.md").read_text()
        for path in sorted(EXAMPLES.iterdir()):
            if path.suffix in (".cpp", ".py", ".toml"):
                self.assertIn(f'"{path.name}"', text, "no test runs it")
                self.assertIn(f"]({path.name})", shown, "examples/README.md does not name it")


unittest.main()
