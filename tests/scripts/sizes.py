#!/usr/bin/env python3
"""Lines per folder, files over 400 lines and the longest functions. A report, not a judge."""

import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG_FILE = 400
LONG_FUNCTION = 60
# A line that opens a function body: at most one level of indentation, ends in ") {" and the like.
OPENS = re.compile(r"^(\s{0,4})(?!namespace|struct|class|enum|union|extern|else|if|for|while|switch|return)"
                   r"\S.*\)\s*(const|noexcept|override|->.*|\s)*\{$")


def functions_of(path):
    lines = path.read_text().splitlines()
    for begin, line in enumerate(lines):
        match = OPENS.match(line)
        if not match:
            continue
        closing = match.group(1) + "}"
        for end in range(begin + 1, len(lines)):
            if lines[end].rstrip() == closing:
                yield end - begin + 1, path.relative_to(ROOT), begin + 1
                break


def main():
    lines = collections.Counter()
    long_files, functions = [], []
    for top in ("include", "src", "cli", "python", "tests", "bench", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            parts = path.relative_to(ROOT).parts
            count = len(path.read_text().splitlines())
            lines["/".join(parts[:2]) if top == "src" else top] += count
            if count > LONG_FILE:
                long_files.append((count, path.relative_to(ROOT)))
            functions.extend(functions_of(path))
    for folder, count in lines.items():
        print(f"{count:7} lines  {folder}")
    print(f"files over {LONG_FILE} lines:", long_files and "" or "none")
    for count, path in sorted(long_files, reverse=True):
        print(f"{count:7} lines  {path}")
    print("longest functions:")
    for count, path, line in sorted(functions, key=lambda f: -f[0])[:5]:
        print(f"{count:7} lines  {path}:{line}{'  (over 60)' if count > LONG_FUNCTION else ''}")


main()
