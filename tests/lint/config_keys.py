#!/usr/bin/env python3
"""docs/training.md has a row for every key of a config, with its default, and for no other."""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LISTS = {"model": "src/model/config/config_fields.h", "data": "src/train/run/run_fields.h",
         "tokenizer": "src/train/run/run_fields.h", "train": "src/train/run/run_fields.h"}
BESIDE = {"model": {"rope_scaling"}}  # read by hand, not in the list
# A run must choose these; the vocab_size becomes that of the data.
CHOSEN = {"data.path": "task:sort", "data.tokens": 16, "data.eval_batches": "none", "train.steps": 1}
FILLED_IN = {"model.vocab_size"}


def keys_in_code(section):
    text = (ROOT / LISTS[section]).read_text()
    body = re.search(rf"visit_{section}_fields\(.*?^}}", text, re.MULTILINE | re.DOTALL).group(0)
    return set(re.findall(r'visit\("(\w+)"', body)) | BESIDE.get(section, set())


def rows_in_docs(section):
    text = (ROOT / "docs/training.md").read_text()
    body = re.search(rf"^### `\[{section}\]`$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", body.group(1), re.MULTILINE))


def defaults_of(rapt):
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for key, value in CHOSEN.items() for word in ("--set", f"{key}={value}")]
        subprocess.run([rapt, "train", "--out", folder, *sets], check=True, capture_output=True)
        return tomllib.loads(pathlib.Path(folder, "config.toml").read_text())


def main(rapt):
    mistakes, defaults = [], defaults_of(rapt)
    for section in LISTS:
        code, docs = keys_in_code(section), rows_in_docs(section)
        assert len(code) >= 3, section
        mistakes += [f"[{section}] {key} is not in docs/training.md" for key in code - docs.keys()]
        mistakes += [f"[{section}] {key} is in docs/training.md only" for key in docs.keys() - code]
        for key, text in docs.items():  # what is none is not in the file
            value = defaults[section].get(key)
            said = None if text == "none" else tomllib.loads("value = " + text.strip("`"))["value"]
            if f"{section}.{key}" not in CHOSEN.keys() | FILLED_IN and said != value:
                mistakes.append(f"[{section}] {key} is {value!r}, docs/training.md says {said!r}")
    print("\n".join(mistakes) or "every key is documented")
    return 1 if mistakes else 0


sys.exit(main(*sys.argv[1:2]))
