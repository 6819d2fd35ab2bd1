#!/usr/bin/env python3
"""Every public header compiles on its own, with the warnings a strict user would turn on."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion",
         "-Wsign-conversion", "-Wshadow", "-Werror"]


def main(compiler):
    headers = sorted((ROOT / "include").rglob("*.h"))
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "alone.cpp")
        for header in headers:
            name = header.relative_to(ROOT / "include")
            source.write_text(f"#include <{name}>\n#include <{name}>\n")
            command = [compiler, *FLAGS, f"-I{ROOT / 'include'}", str(source)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                failed.append(f"{name} does not compile on its own:\n{done.stderr}")
    print("\n".join(failed) or f"{len(headers)} public headers compile on their own")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))
