#!/usr/bin/env python3
"""Every #include points downward: the list of src/README.md, checked."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Folder under src/: rank. A file may include its own folder and folders of lower rank.
RANKS = {
    "base": 0,
    "kernels": 1,
    "attention": 2, "positions": 2,
    "nn": 3, "measure": 3,
    "distributed": 4, "formats": 4,
    "text": 5,
    "model": 6,
    "families": 7, "train": 7, "generate": 7,
    "lab": 8,
    "head_report": 9,
}
# Libraries of others, and the only folders that may know them.
LIBRARIES = {
    "hwy": {"src/kernels", "bench"},
    "CLI": {"cli"}, "fmt": {"cli"}, "nlohmann": {"cli", "src/formats", "src/model", "src/train"},
    "toml++": {"src/formats"}, "utf8proc.h": {"src/text"}, "pcre2.h": {"src/text"},
    "xxhash.h": {"src/base"},
    "mpi.h": {"src/distributed"},
    "nanobind": {"python"},
    "gtest": {"tests"}, "gmock": {"tests"},
    "benchmark": {"bench"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')


def folder_of(path):
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] in ("src", "include") else parts[0]


def library_mistake(folder, target):
    owners = LIBRARIES.get(target.split("/")[0])
    if owners is not None and folder not in owners:
        return f"only {', '.join(sorted(owners))} may include <{target}>"
    return None


def project_mistake(path, folder, target):
    first = target.split("/")[0]
    if first == "rapt":
        return None if (ROOT / "include" / target).exists() else f'no public header "{target}"'
    if folder == "include/rapt":
        return f'public headers include std and each other only, not "{target}"'
    if folder in ("tests", "bench"):
        homes = [ROOT / "src", ROOT / "tests", ROOT, path.parent]
        return None if any((home / target).exists() for home in homes) else f'no file "{target}"'
    if folder in ("cli", "python", "examples"):
        return None if first == folder else f'only public headers, not "{target}"'
    if first not in RANKS:
        return f'"{target}" does not start with a folder of src/'
    if not (ROOT / "src" / target).exists():
        return f'no file "{target}"'
    own = folder.split("/")[1]
    if first != own and RANKS[first] >= RANKS[own]:
        return f"{own} has rank {RANKS[own]} and may not include {first} of rank {RANKS[first]}"
    return None


def mistakes_of(path):
    folder = folder_of(path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, target = match.groups()
        mistake = library_mistake(folder, target)
        if not mistake and quote == '"' and target.split("/")[0] not in LIBRARIES:
            mistake = project_mistake(path, folder, target)
        if not mistake and quote == "<" and folder == "include/rapt" and "/" in target:
            mistake = f"public headers include std and each other only, not <{target}>"
        if mistake:
            yield f"{path.relative_to(ROOT)}:{number}: {mistake}"


def main():
    files = [path for top in ("include", "src", "cli", "python", "tests", "bench", "examples")
             for path in sorted((ROOT / top).rglob("*"))
             if path.suffix in (".h", ".cpp") and "consumer" not in path.parts]
    unknown = [f"src/{p.name}: not in the table of ranks" for p in sorted((ROOT / "src").iterdir())
               if p.is_dir() and p.name not in RANKS]
    mistakes = unknown + [mistake for path in files for mistake in mistakes_of(path)]
    print("\n".join(mistakes) or f"{len(files)} files, every include points downward")
    return 1 if mistakes else 0


sys.exit(main())
