#!/usr/bin/env python3
"""Every enum of the public headers has names, spelled like its values, and a test that goes there and back."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMENT = re.compile(r"//[^\n]*")
TYPE = re.compile(r"^(?:struct|class) (?:RAPT_API )?(\w+)[^;{]*\{", re.M)
ENUM = re.compile(r"^( *)enum class (\w+)[^;{]*\{([^}]*)\}", re.M)
NAMES = re.compile(r'enum_names<([\w:]+)>\{\s*"[^"]*",\s*("[^}]*)\}')


def enums_of(text):
    """(name, names of its values), a nested one with the name of its class."""
    for match in ENUM.finditer(text):
        indent, name, values = match.groups()
        owners = [m.group(1) for m in TYPE.finditer(text, 0, match.start())] if indent else []
        spelled = ", ".join(value.split("=")[0].strip() for value in values.split(",") if value.strip())
        yield "::".join(owners[-1:] + [name]), spelled


def main():
    test = (ROOT / "tests/base/enum_names_test.cpp").read_text()
    mistakes, count = [], 0
    for path in sorted((ROOT / "include/rapt").rglob("*.h")):
        text = COMMENT.sub("", path.read_text())
        given = {name.removeprefix("rapt::").removeprefix("distributed::"): "".join(re.findall(r'"([^"]*)"', values)) for name, values in NAMES.findall(text)}
        for name, values in enums_of(text):
            count += 1
            if given.get(name) != values:
                mistakes.append(f'{path.relative_to(ROOT)}: enum_names<{name}> is "{given.get(name)}", expected "{values}"')
            if f"{name}::{values.split(', ')[-1]})" not in test:
                mistakes.append(f"tests/base/enum_names_test.cpp: no test of {name}")
    print("\n".join(mistakes) or f"{count} enums, all with names")
    return 1 if mistakes else 0


sys.exit(main())
