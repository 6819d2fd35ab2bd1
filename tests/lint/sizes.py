#!/usr/bin/env python3
"""Small files, short functions, folders that show their parts: limits on the sources, and a report of them."""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG_FILE = 400
LONG_FUNCTION = 60
FULL_FOLDER = 24  # of include, src, cli, python and tests
# Written by scripts/update-unicode.
GENERATED = {"src/text/unicode/unicode_ranges.h", "src/text/unicode/unicode_later.h"}
# What may open a block besides a function.
OTHER = re.compile(r"\s*(namespace|struct|class|enum|union|extern|using|else|if|for|while|switch|do|try|static const|"
                   r"template|constexpr|const|TEST|INSTANTIATE|public|private|protected|//|#|\})")


def functions_of(path, lines):
    """Functions of namespaces and of classes: from the last line of their indentation to their brace."""
    begins = {}  # by indentation
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent not in (0, 2):
            continue
        if line == " " * indent + "}" and indent in begins:
            begin = begins.pop(indent)
            if not OTHER.match(lines[begin]):
                yield number - begin + 1, f"{path}:{begin + 1}"
        elif not line.lstrip().startswith(("}", "//", "#")):
            begins[indent] = number


def scan():
    """Lines of C++ per folder, files per folder, files and functions as (lines, place)."""
    lines, entries = collections.Counter(), collections.Counter()
    files, functions = [], []
    for top in ("include", "src", "cli", "python", "tests", "bench", "examples"):
        for path in sorted((ROOT / top).rglob("*")):
            name = path.relative_to(ROOT)
            if "__pycache__" in name.parts:
                continue
            if path.is_file() and top in ("include", "src", "cli", "python", "tests"):
                entries[str(name.parent)] += 1
            if path.suffix not in (".h", ".cpp", ".py"):
                continue
            text = path.read_text().splitlines()
            if path.suffix == ".py":
                files.append((len(text), str(name)))
                continue
            lines["/".join(name.parts[:2]) if top == "src" else top] += len(text)
            if str(name) not in GENERATED:
                files.append((len(text), str(name)))
            functions.extend(functions_of(name, text))
    return lines, entries, files, functions


def main():
    lines, entries, files, functions = scan()
    for folder, count in lines.items():
        print(f"{count:7} lines  {folder}")
    mistakes = []
    for what, unit, limit, found in (("files", "lines", LONG_FILE, files),
                                     ("functions", "lines", LONG_FUNCTION, functions),
                                     ("folders", "files", FULL_FOLDER, [(n, f) for f, n in entries.items()])):
        print(f"largest {what}, at most {limit} {unit}:")
        ordered = sorted(found, key=lambda entry: -entry[0])
        for count, place in ordered[:3]:
            print(f"{count:7} {unit}  {place}")
        mistakes += [f"{place}: {count} {unit}, expected at most {limit}" for count, place in ordered if count > limit]
    if mistakes:
        print("too large:", *mistakes, sep="\n")
    return 1 if mistakes else 0


sys.exit(main())
