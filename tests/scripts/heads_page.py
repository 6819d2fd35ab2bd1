#!/usr/bin/env python3
"""The page of `rapt heads --html` in a real browser: what is clicked on is shown, nothing is fetched."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import chrome

RAPT = sys.argv.pop(1)
WORDS = "".join(f"The {i} quick <b>foxes</b> jump & run.\n" for i in range(60))
CELLS = '[...document.querySelectorAll("#grid button")]'


def run(*arguments):
    done = subprocess.run([RAPT, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@unittest.skipUnless(chrome.COMMAND, "no chromium here: scripts/setup --browser installs it")
class Page(unittest.TestCase):
    TOKENS, TILES = 100, 100

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="rapt-heads-")
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)
        (path / "text.txt").write_text(WORDS)
        run("train", "--data", str(path / "text.txt"), "--out", str(path / "run"), "--set",
            "train.steps=2", "--set", "data.tokens=32", "--set", "model.hidden_size=16", "--set",
            "model.layers=2", "--set", "model.heads=2", "--set", "data.eval_batches=1")
        cls.page = path / "page.html"
        run("heads", str(path / "run"), "--text", str(path / "text.txt"), "--limit", str(cls.TOKENS),
            "--html", str(cls.page))
        cls.chrome = cls.enterClassContext(chrome.Chrome())

    def setUp(self):
        self.chrome.resize(1200, 900)
        self.chrome.prefer("light")
        self.chrome.open(self.page)

    def tearDown(self):
        self.assertEqual(self.chrome.complaints(), [])
        self.assertTrue(all(url.startswith("file:") for url in self.chrome.requests()))

    def text(self, id):
        return self.chrome.evaluate(f'document.getElementById("{id}").textContent')

    def pixels(self):
        return self.chrome.evaluate('document.getElementById("map").toDataURL()')

    def colours(self):
        return self.chrome.evaluate(CELLS + ".map((cell) => cell.style.background).join()")

    def set(self, id, value, kind):
        self.chrome.evaluate(f'{{ const it = document.getElementById("{id}"); it.value = {value!r}; '
                             f'it.dispatchEvent(new Event("{kind}")); }}')

    def mouse(self, kind, x, y):
        """At a share of the map's sides."""
        self.chrome.evaluate('document.getElementById("map").scrollIntoView({block: "center"})')
        box = self.chrome.evaluate('document.getElementById("map").getBoundingClientRect().toJSON()')
        at = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
        kinds = ["mousePressed", "mouseReleased"] if kind == "click" else ["mouseMoved"]
        for each in kinds:
            self.chrome.tell("Input.dispatchMouseEvent", type=each, button="left" if kind == "click" else
                             "none", clickCount=int(kind == "click"), **at)

    def test_a_click_on_a_head_shows_it(self):
        self.assertEqual(self.chrome.evaluate(CELLS + ".length"), 4)
        seen = set()
        for head in range(4):
            self.chrome.evaluate(f"{CELLS}[{head}].click()")
            self.assertEqual(self.text("one-title"), f"Layer {head // 2}, head {head % 2}")
            seen.add((self.pixels(), self.text("numbers")))
        self.assertEqual(len(seen), 4)

    def test_keys_move_among_heads(self):
        self.chrome.evaluate(f"{CELLS}[0].click(); {CELLS}[0].focus()")
        for name, head in (("ArrowRight", 1), ("ArrowDown", 3), ("ArrowLeft", 2), ("ArrowDown", 2)):
            self.chrome.tell("Input.dispatchKeyEvent", type="keyDown", key=name)
            self.assertEqual(self.text("one-title"), f"Layer {head // 2}, head {head % 2}")

    def test_every_measure_colours_the_heads(self):
        names = self.chrome.evaluate('[...document.getElementById("measure").options].map((o) => o.textContent)')
        self.assertGreaterEqual(len(names), 12)
        pictures = []
        for i in range(len(names)):
            self.set("measure", str(i), "change")
            self.assertTrue(self.text("legend") and self.text("meaning"), names[i])
            pictures.append(self.colours())
        self.assertGreater(len(set(pictures)), len(names) // 2)

    def test_the_window_slides(self):
        names = self.chrome.evaluate('[...document.getElementById("measure").options].map((o) => o.textContent)')
        self.set("measure", str(names.index("Kept by a window")), "change")
        last = self.chrome.evaluate('document.getElementById("window").max')
        self.set("window", "0", "input")
        narrow, words = self.colours(), self.text("window-value")
        self.set("window", last, "input")
        self.assertNotEqual((self.colours(), self.text("window-value")), (narrow, words))
        self.assertIn("100 %", self.chrome.evaluate(CELLS + "[0].title"))

    def test_pointing_at_the_map_names_a_pair(self):
        self.mouse("move", 0.001, 0.999)
        text = self.text("pair")
        self.assertIn("→", text)
        self.assertIn("%", text)
        self.mouse("click", 0.001, 0.999)
        tokens = 'document.getElementById("tokens").children'
        self.assertEqual(self.chrome.evaluate(tokens + ".length"), self.TILES)
        self.assertEqual(self.chrome.evaluate(f'[...{tokens}].findIndex((t) => t.className === "from")'),
                         self.TILES - 1)
        self.assertGreater(self.chrome.evaluate(
            f'[...{tokens}].filter((t) => t.style.background !== "").length'), 0)

    def test_the_text_is_the_text(self):
        shown = self.text("tokens").replace("⏎", "")
        self.assertEqual(shown, WORDS[:self.TOKENS])

    def test_fits_every_window_and_scheme(self):
        light = self.pixels()
        for width in (1400, 1000, 760, 390):
            self.chrome.resize(width, 900)
            wider = self.chrome.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth")
            self.assertLessEqual(wider, 0, f"at {width}")
        self.chrome.prefer("dark")
        self.chrome.wait_for(f'document.getElementById("map").toDataURL() !== {light!r}', 5)


class LongPage(Page):
    """1000 tokens are 250 tiles of four."""
    TOKENS, TILES = 1000, 250


unittest.main(verbosity=1)
