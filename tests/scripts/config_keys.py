#!/usr/bin/env python3
"""docs/training.md has a row for every key of a config, and for no other."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = {"model": "src/model/config_fields.h", "data": "src/train/run_fields.h",
         "tokenizer": "src/train/run_fields.h", "train": "src/train/run_fields.h"}
BESIDE = {"model": {"rope_scaling"}}  # read by hand, beside the list


def keys_in_code(section):
    text = (ROOT / LISTS[section]).read_text()
    body = re.search(rf"visit_{section}_fields\(.*?^}}", text, re.MULTILINE | re.DOTALL).group(0)
    return set(re.findall(r'visit\("(\w+)"', body)) | BESIDE.get(section, set())


def rows_in_docs(section):
    text = (ROOT / "docs/training.md").read_text()
    body = re.search(rf"^### `\[{section}\]`$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", body.group(1), re.MULTILINE))


def main():
    mistakes = []
    for section in LISTS:
        code, docs = keys_in_code(section), rows_in_docs(section)
        assert len(code) >= 3, section
        mistakes += [f"[{section}] {key} is not in docs/training.md" for key in code - docs.keys()]
        mistakes += [f"[{section}] {key} is in docs/training.md only" for key in docs.keys() - code]
    print("\n".join(mistakes) or "every key is documented")
    return 1 if mistakes else 0


sys.exit(main())
