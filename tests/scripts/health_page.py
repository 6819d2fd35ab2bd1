#!/usr/bin/env python3
"""The page of `rapt inspect --html` in a browser: no mistakes, and what is clicked on is shown."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RAPT = sys.argv[1]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

EARLY = """<script>window.mistakes = [];
addEventListener("error", (event) => mistakes.push(event.message));
const complain = console.error; console.error = (...all) => { mistakes.push(all.join(" ")); complain(...all); };
</script>"""
# What a visitor would do; the answers end up in the text of the page.
VISIT = """<script>
const told = {};
const pixels = () => document.getElementById("map").toDataURL();
const by = (id) => document.getElementById(id);
const colours = () => [...document.querySelectorAll("#grid button")].map((b) => b.style.background).join();
told.cells = document.querySelectorAll("#grid button").length;
told.title = by("title").textContent;
told.advice = by("advice").children.length;
const before = [pixels(), by("numbers").textContent, by("one-title").textContent];
document.querySelectorAll("#grid button")[told.cells - 1].click();
told.clicked = [pixels(), by("numbers").textContent, by("one-title").textContent].map((x, i) => x !== before[i]);
told.head = by("one-title").textContent;
const kinds = colours();
told.measures = [...by("measure").options].map((option) => {
  by("measure").value = option.value;
  by("measure").dispatchEvent(new Event("change"));
  return [option.textContent, by("legend").textContent.length > 0];
});
told.recoloured = colours() !== kinds;
by("measure").value = [...by("measure").options].findIndex((o) => o.textContent === "Kept by a window");
by("measure").dispatchEvent(new Event("change"));
const wide = (by("window").value = by("window").max, by("window").dispatchEvent(new Event("input")), colours());
by("window").value = 0;
by("window").dispatchEvent(new Event("input"));
told.slides = colours() !== wide;
const box = by("map").getBoundingClientRect();
const event = (kind, x, y) => by("map").dispatchEvent(new MouseEvent(kind,
  {clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true}));
event("mousemove", 0.01, 0.99);
told.pair = by("pair").textContent;
event("click", 0.01, 0.99);
told.tokens = by("tokens").children.length;
told.shaded = [...by("tokens").children].filter((t) => t.style.background !== "").length;
told.from = [...by("tokens").children].findIndex((t) => t.className === "from");
told.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
told.outside = performance.getEntriesByType("resource").length;
told.mistakes = mistakes;
document.documentElement.append(Object.assign(document.createElement("pre"), {id: "told", textContent: JSON.stringify(told)}));
</script>"""


def run(*arguments):
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def visit(page, width):
    text = page.read_text().replace("<head>", "<head>" + EARLY, 1).replace("</body>", VISIT + "</body>", 1)
    visited = page.with_name("visited.html")
    visited.write_text(text)
    dom = run(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
              "--dump-dom", visited.as_uri())
    found = re.search(r'<pre id="told">(.*?)</pre>', dom, re.S)
    assert found, "the visit did not end: " + dom[-2000:]
    text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(text)


def check(told, tokens):
    assert told["mistakes"] == [], told["mistakes"]
    assert told["cells"] == 4, told
    assert told["clicked"] == [True, True, True], told
    assert told["head"] == "Layer 1, head 1", told
    assert all(shown for _, shown in told["measures"]) and len(told["measures"]) >= 12, told
    assert told["recoloured"] and told["slides"], told
    assert "→" in told["pair"] and "%" in told["pair"], told
    assert (told["tokens"], told["from"]) == (tokens, tokens - 1) and told["shaded"] > 0, told
    assert told["advice"] >= 3 and told["outside"] == 0, told
    assert told["overflow"] <= 0, f"the page is {told['overflow']} pixels wider than the window"


def main():
    if BROWSER is None:
        print("chromium is not installed; the page was not visited")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "texts").mkdir()
        words = "".join(f"The {i} quick <b>foxes</b> jump & run.\n" for i in range(60))
        (folder / "texts" / "text.txt").write_text(words)
        run(RAPT, "train", "--data", str(folder / "texts"), "--out", str(folder / "run"), "--set",
            "train.steps=2", "--set", "data.tokens=32", "--set", "model.width=16", "--set",
            "model.layers=2", "--set", "model.heads=2", "--set", "data.evaluations=1")
        (folder / "text.txt").write_text(words[:200])
        for limit, tokens in ((100, 100), (1000, 250)):  # 1000 tokens are 250 tiles of four
            (folder / "text.txt").write_text(words[:limit])
            run(RAPT, "inspect", str(folder / "run"), "--text", str(folder / "text.txt"), "--html",
                str(folder / "page.html"))
            for width in (1200, 500):
                check(visit(folder / "page.html", width), tokens)
    print("visited")


main()
