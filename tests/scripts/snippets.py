#!/usr/bin/env python3
"""Every C++ snippet of README.md and docs/ compiles and runs; every `rapt` line in them runs.

A snippet with main() is a program. Any other is the body of a function that finds `q`, `k`, `v` and
`dout` [1, 8, 256, 64], `heads` and namespace rapt around it.
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PRELUDE = """#include <rapt/rapt.h>
#include <cstdio>
#include <limits>
#include <span>
#include <vector>
using namespace rapt;
[[maybe_unused]] static const Tensor q({1, 8, 256, 64}), k({1, 8, 256, 64}), v({1, 8, 256, 64});
[[maybe_unused]] static const Tensor dout({1, 8, 256, 64});
[[maybe_unused]] static const Index heads = 8;
"""


def blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for match in BLOCK.finditer(path.read_text()):
            line = path.read_text()[:match.start()].count("\n") + 1
            yield f"{path.relative_to(ROOT)}:{line}", match.group(1), match.group(2)


def run(where, command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0:
        return []
    return [f"{where}: {shlex.join(command)} failed:\n{done.stdout}{done.stderr}"]


def fragments_program(fragments):
    text = PRELUDE
    for number, (where, body) in enumerate(fragments):
        text += f'static void fragment_{number}() {{  // {where}\n{body}}}\n'
    calls = "".join(f"  fragment_{number}();\n" for number in range(len(fragments)))
    return text + f"int main() {{\n{calls}}}\n"


def main(compiler, library, command):
    mistakes, programs, fragments, lines = [], [], [], []
    for where, language, body in blocks():
        if language == "cpp":
            (programs if "int main(" in body else fragments).append((where, body))
        elif language == "sh":
            lines += [(where, line) for line in body.splitlines() if line.startswith("rapt ")]
    programs.append(("fragments", fragments_program(fragments)))
    with tempfile.TemporaryDirectory() as folder:
        for where, text in programs:
            source, binary = pathlib.Path(folder, "snippet.cpp"), pathlib.Path(folder, "snippet")
            source.write_text(text)
            link = [library, f"-Wl,-rpath,{pathlib.Path(library).parent}", "-ltbb", "-lhwy"]
            mistakes += run(where, [compiler, "-std=c++20", "-O1", "-Wall", "-Wno-unused-variable",
                                    "-Werror", f"-I{ROOT / 'include'}", str(source), *link,
                                    "-o", str(binary)]) or run(where, [str(binary)])
        for where, line in lines:
            words = shlex.split(line, comments=True)
            if words[:3] == ["rapt", "bench", "attention"]:
                words += ["--repeat", "1"]
            mistakes += run(where, [command, *words[1:]])
    print("\n".join(mistakes) or f"{len(programs) - 1} programs, {len(fragments)} fragments and "
          f"{len(lines)} command lines run")
    return 1 if mistakes else 0


sys.exit(main(*sys.argv[1:4]))
