#!/usr/bin/env python3
"""Every C++ snippet of README.md and docs/ compiles and runs; every `rapt` line in them runs.

A snippet with main() is a program; one that is a file of examples/ runs there. Any other is the body
of a function that finds `q`, `k`, `v` and `dout` [1, 8, 256, 64], `heads` and namespace rapt around it.
Lines of one page run in one folder, which holds examples/ and docs/; training takes two steps,
writing ends after a few tokens, and the lab runs one experiment of its five.
"""

import itertools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = [word for key in ("train.steps=2", "train.warmup_steps=0", "data.eval_batches=1", "data.batch_size=2")
         for word in ("--set", key)]
# Models that Python packages carry, in the environment of the clone if there is one.
PACKAGED = ("minilm", "smollm2")
if (ROOT / ".venv").exists():
    os.environ.setdefault("VIRTUAL_ENV", str(ROOT / ".venv"))
PRELUDE = """#include <rapt/models/transformer.h>
#include <rapt/rapt.h>
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


def installed(name, command):
    return subprocess.run([command, "inspect", name], capture_output=True).returncode == 0


def run(where, command, folder=None):
    # A model that has hardly trained writes bytes that are no text.
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300,
                          cwd=folder)
    if done.returncode == 0:
        return []
    return [f"{where}: {shlex.join(command)} failed:\n{done.stdout}{done.stderr}"]


def fragments_program(fragments):
    text = PRELUDE
    for number, (where, body) in enumerate(fragments):
        text += f'static void fragment_{number}() {{  // {where}\n{body}}}\n'
    calls = "".join(f"  fragment_{number}();\n" for number in range(len(fragments)))
    return text + f"int main() {{\n{calls}}}\n"


def run_lines(lines, command):
    """The lines of a page, in order: later ones use what earlier ones made."""
    mistakes = []
    command = str(pathlib.Path(command).resolve())
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "docs", "README.md"):
            pathlib.Path(folder, name).symlink_to(ROOT / name)
        for where, line in lines:
            words = shlex.split(line, comments=True)
            if "--limit" in words:  # the test has one of its own
                del words[words.index("--limit") : words.index("--limit") + 2]
            if any(name in words and not installed(name, command) for name in PACKAGED):
                print(f"{where}: not run, the package with its model is not installed: {line}")
                continue
            if words[:2] == ["rapt", "generate"] and "--max-new-tokens" not in words:
                words += ["--max-new-tokens", "8"]
            if words[:2] == ["rapt", "heads"]:
                words += ["--limit", "48"]
            if words[:3] in (["rapt", "bench", "attention"], ["rapt", "bench", "ranks"]):
                words += ["--repeat", "1"]
            if words[:2] == ["rapt", "train"]:
                words += SHORT
            if words == ["rapt", "lab"]:  # all of them take minutes
                words += ["positions"]
            words[0] = {"rapt": command, "python3": sys.executable}[words[0]]
            mistakes += run(where, words, folder)
    return mistakes


def main(compiler, library, command):
    mistakes, programs, fragments, lines = [], [], [], []
    examples = [path.read_text() for path in (ROOT / "examples").glob("*.cpp")]
    for where, language, body in blocks():
        if language == "cpp":
            if body not in examples:
                (programs if "int main(" in body else fragments).append((where, body))
        elif language == "sh":
            lines += [(where, line) for line in body.splitlines()
                      if line.startswith(("rapt ", "python3 examples/"))]
    programs.append(("fragments", fragments_program(fragments)))
    with tempfile.TemporaryDirectory() as folder:
        for where, text in programs:
            source, binary = pathlib.Path(folder, "snippet.cpp"), pathlib.Path(folder, "snippet")
            source.write_text(text)
            link = [library, f"-Wl,-rpath,{pathlib.Path(library).parent}", "-pthread", "-lhwy", "-lutf8proc",
                    "-lpcre2-8"]
            mistakes += run(where, [compiler, "-std=c++20", "-O1", "-Wall", "-Wno-unused-variable",
                                    "-Werror", f"-I{ROOT / 'include'}", str(source), *link,
                                    "-o", str(binary)]) or run(where, [str(binary)])
    for _, group in itertools.groupby(lines, lambda entry: entry[0].rsplit(":", 1)[0]):
        mistakes += run_lines(list(group), command)
    print("\n".join(mistakes) or f"{len(programs) - 1} programs, {len(fragments)} fragments and "
          f"{len(lines)} command lines run")
    return 1 if mistakes else 0


sys.exit(main(*sys.argv[1:4]))
