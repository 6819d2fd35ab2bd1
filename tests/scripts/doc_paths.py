#!/usr/bin/env python3
"""Paths that src/README.md and docs/internals name exist, and the page of routes is the list that dispatch reads."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = re.compile(r"`((?:src|tests|include|cli|python|docs|scripts|bench)/[\w./-]+)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def missing(page):
    text = page.read_text()
    for path in PATH.findall(text):
        if not (ROOT / path).exists():
            yield f"{page.relative_to(ROOT)}: there is no {path}"
    for link in LINK.findall(text):
        if not (page.parent / link).exists():
            yield f"{page.relative_to(ROOT)}: the link {link} leads nowhere"


def main():
    pages = [ROOT / "src/README.md", *sorted((ROOT / "docs/internals").glob("*.md"))]
    mistakes = [mistake for page in pages for mistake in missing(page)]
    routes = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    if (ROOT / "docs/internals/routes.md").read_text() != routes:
        mistakes.append("docs/internals/routes.md: not what rapt_routes prints; write its output there")
    print("\n".join(mistakes) or f"{len(pages)} pages, every path exists")
    return 1 if mistakes else 0


sys.exit(main())
