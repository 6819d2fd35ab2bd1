#!/usr/bin/env python3
"""The lab's page in a real browser: nothing is fetched, every figure is drawn, sliders move marks.

lab_page.py RAPT EXPERIMENT...   runs these experiments (all: the whole report) and opens the page.
"""

import collections
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import unittest

import chrome

RAPT, EXPERIMENTS = sys.argv[1], sys.argv[2:]
del sys.argv[1:]
WHOLE = EXPERIMENTS == ["all"]
LONGEST_SECONDS = 180  # of the whole report on two cores

# The marks of a view, as the scene has them: type, number of items, where they are.
MARKS = """
(name) => raptViews[name].map((view) => {
  const found = [];
  const walk = (group) => {
    for (const mark of group.items) {
      if (mark.role === "mark") found.push([mark.marktype, mark.items.length, mark.items.map((i) =>
        [i.x, i.y, i.x2, i.y2, i.width, i.height, i.fill, i.size].join(" ")).join(";")]);
      if (mark.marktype === "group") for (const item of mark.items) walk(item);
    }
  };
  for (const item of view.scenegraph().root.items) walk(item);
  return found;
})
"""


@unittest.skipUnless(chrome.COMMAND, "no chromium here: scripts/setup --browser installs it")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="rapt-lab-")
        cls.addClassCleanup(cls.folder.cleanup)
        start = time.monotonic()
        done = subprocess.run([RAPT, "lab", *([] if WHOLE else EXPERIMENTS), "--out", cls.folder.name],
                              capture_output=True, text=True)
        cls.seconds = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cls.cpu_seconds = used.ru_utime + used.ru_stime
        assert done.returncode == 0, done.stderr
        cls.path = pathlib.Path(cls.folder.name) / "report.html"
        cls.report = json.loads((cls.path.parent / "report.json").read_text())
        cls.figures = [f"{section['name']}-{figure['name']}" for section in cls.report["sections"]
                       for figure in section["figures"]]
        cls.chrome = cls.enterClassContext(chrome.Chrome())
        cls.chrome.resize(1100, 900)
        cls.open()

    @classmethod
    def open(cls):
        cls.chrome.open(cls.path, "document.documentElement.dataset.drawn > 0")

    def marks(self, name):
        return self.chrome.evaluate(f"({MARKS})({json.dumps(name)})")

    def drawn(self):
        return self.chrome.evaluate("Object.keys(raptViews)")

    def test_says_nothing_and_asks_for_nothing(self):
        self.open()
        self.chrome.evaluate("new Promise((go) => setTimeout(go, 300))")
        self.assertEqual(self.chrome.complaints(), [])
        self.assertEqual(self.chrome.requests(), [self.path.resolve().as_uri()])

    def test_forbids_the_network_to_itself(self):
        failed = self.chrome.evaluate(
            "fetch('http://127.0.0.1:1/').then(() => 'went', () => 'refused')")
        self.assertEqual(failed, "refused")
        self.assertTrue(any("Content Security Policy" in line for line in self.chrome.complaints()))
        self.open()

    def test_every_figure_has_marks_where_one_can_see_them(self):
        plain = self.chrome.evaluate("[...document.querySelectorAll('figure:has(.plain)')].map(f => f.id)")
        self.assertEqual(sorted(self.drawn() + plain), sorted(self.figures))
        for name in self.drawn():
            counts = collections.Counter()  # a panel may have no row of some table
            for view in self.marks(name):
                self.assertGreater(sum(count for kind, count, _ in view if kind != "group"), 0, name)
                for kind, count, places in view:
                    counts[kind] += count
                    self.assertNotIn("NaN", places, (name, kind))
            self.assertGreater(min(counts.values()), 0, (name, counts))

    def test_every_figure_has_a_title_text_command_and_numbers(self):
        for name in self.figures:
            part = f"document.getElementById({json.dumps(name)})"
            title, text, command = self.chrome.evaluate(
                f"['h3', '.text', '.again code'].map(s => {part}.querySelector(s).textContent)")
            self.assertGreater(len(title), 10, name)
            self.assertGreaterEqual(len(re.findall(r"[.;:](\s|$)", text)), 1, name)
            self.assertRegex(command, r"^rapt lab \w+")
        for name in self.drawn():
            rows = self.chrome.evaluate(
                f"""(async () => {{
                  const d = document.querySelector('#' + CSS.escape({json.dumps(name)}) + ' details');
                  d.open = true;
                  await new Promise((go) => setTimeout(go, 20));
                  return d.querySelectorAll('td').length; }})()""")
            self.assertGreater(rows, 0, name)
        self.open()

    def test_sliders_move_marks(self):
        moved = 0
        for name in self.drawn():
            for index in range(self.chrome.evaluate(
                    f"document.querySelectorAll('#' + CSS.escape({json.dumps(name)}) + ' input').length")):
                seen = []
                for end in ("min", "max"):
                    self.chrome.evaluate(
                        f"""(() => {{
                          const i = document.querySelectorAll('#' + CSS.escape({json.dumps(name)}) + ' input')[{index}];
                          i.value = i[{json.dumps(end)}];
                          i.dispatchEvent(new Event('input')); }})()""")
                    seen.append(self.marks(name))
                self.assertNotEqual(seen[0], seen[1], name)
                moved += 1
        self.assertGreater(moved, 0)
        self.assertEqual(self.chrome.complaints(), [])

    def test_hovering_tells_the_numbers(self):
        name = next(n for n in self.drawn() if n == "scale-variance")
        x, y = self.chrome.evaluate(
            f"""(() => {{
              const p = document.querySelector('#{name} .mark-symbol path');
              p.scrollIntoView({{block: 'center', behavior: 'instant'}});
              const box = p.getBoundingClientRect();
              return [box.x + box.width / 2, box.y + box.height / 2]; }})()""")
        self.chrome.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.chrome.wait_for("!document.querySelector('.tip').hidden", 5)
        self.assertIn("variance", self.chrome.evaluate("document.querySelector('.tip').textContent"))

    def test_fits_a_phone_and_darkness(self):
        self.chrome.resize(360, 740, 2)
        self.chrome.prefer("dark")
        self.open()
        self.addCleanup(self.chrome.prefer, "light")
        self.addCleanup(self.chrome.resize, 1100, 900)
        self.assertLessEqual(self.chrome.evaluate("document.documentElement.scrollWidth"), 360)
        wide = self.chrome.evaluate(
            "[...document.querySelectorAll('.chart svg, .chart canvas')].filter("
            "c => c.getBoundingClientRect().right > 360).length")
        self.assertEqual(wide, 0)
        paper = self.chrome.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertLess(max(map(int, re.findall(r"\d+", paper)[:3])), 64)
        ink = self.chrome.evaluate("raptViews['scale-variance'][0].scale('color').range()[0]")
        self.assertEqual(ink, "#6cb2f0")

    def test_prints(self):
        pdf = self.chrome.pdf()
        self.assertEqual(pdf[:5], b"%PDF-")
        pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
        self.assertGreaterEqual(pages, len(self.figures) // 4)

    def test_the_numbers_are_all_in_the_json(self):
        for section in self.report["sections"]:
            for figure in section["figures"]:
                self.assertTrue(figure["data"], figure["name"])
                for table, rows in figure["data"].items():
                    self.assertGreater(len(rows), 0 if table != "crossings" else -1,
                                       (figure["name"], table))

    @unittest.skipUnless(WHOLE, "only some experiments were run")
    def test_the_whole_report_takes_less_than_three_minutes(self):
        self.assertEqual(len(self.report["sections"]), 5)
        # On a machine with other work, what it computed in all: alone it cannot take longer.
        self.assertLess(min(self.seconds, self.cpu_seconds), LONGEST_SECONDS)


unittest.main(verbosity=2)
