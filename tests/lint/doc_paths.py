#!/usr/bin/env python3
"""Paths and links in the documentation exist, and the page of routes is the list that dispatch reads."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = re.compile(r"`((?:src|tests|include|cli|python|docs|scripts|bench)/[\w./-]+)`")
FILE = re.compile(r"`((?:[\w-]+/)*\w[\w-]*\.(?:h|cpp))`")
ELSEWHERE = {"CHANGELOG.md", "EXPERIMENTS.md"}  # names of older trees
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^):]*))?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page):
    """Of its headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    return ["/" + path for path in listed if path.endswith((".h", ".cpp"))]


def missing(page, sources):
    text = page.read_text()
    for name in FILE.findall(text) if page.name not in ELSEWHERE else ():
        if name != "NAME.cpp" and not any(path.endswith("/" + name) for path in sources):
            yield f"{page.relative_to(ROOT)}: there is no file {name}"
    for path in PATH.findall(text):
        if not (ROOT / path).exists():
            yield f"{page.relative_to(ROOT)}: there is no {path}"
    for link, anchor in LINK.findall(CODE.sub("", text)):
        target = page.parent / link if link else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: there is no {link}, which a link names"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(ROOT)}: {link or page.name} has no heading #{anchor}"


def main():
    tops = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "src/README.md", "bench/README.md",
            "bench/EXPERIMENTS.md", "examples/README.md")
    pages = [*(ROOT / top for top in tops), *sorted((ROOT / "docs").rglob("*.md"))]
    sources = tracked()
    mistakes = [mistake for page in pages for mistake in missing(page, sources)]
    routes = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    if (ROOT / "docs/internals/routes.md").read_text() != routes:
        mistakes.append("docs/internals/routes.md: not what rapt_routes prints; write its output there")
    print("\n".join(mistakes) or f"{len(pages)} pages, every path and link exists")
    return 1 if mistakes else 0


sys.exit(main())
