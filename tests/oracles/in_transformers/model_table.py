"""The table of model types: what each verdict means, and how many types there are of each kind.

pass: as eager attention; of the modules with Transformers' AttentionInterface, that every one ran, each
time through rapt. in part: some of those did not run, or not through rapt. refused: rapt says that it does not do this model. not tested: the tiny model
or its inputs do not work in eager attention either, which says nothing about rapt. nothing to test: the
model has no such thing. time-out: no verdict in time. DIFFERENT, ERROR: rapt's numbers or rapt's crash.
"""

import csv
import pathlib
import re

TABLE = pathlib.Path(__file__).with_name("model_types.csv")
DOCUMENTATION = pathlib.Path(__file__).parents[3] / "docs" / "transformers.md"
CHECKS = ["forward", "padded left", "padded right", "dynamic cache", "static cache", "beams",
          "gradients", "attentions"]
MODULES = "modules"
FAILURES = ("DIFFERENT", "ERROR")


def read_table():
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def write_table(rows):
    with TABLE.open("w", newline="") as file:
        table = csv.DictWriter(file, ["model type", "class", MODULES, *CHECKS], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def category(row):
    """The worst verdict decides, except that a type with passing checks is not called untested."""
    kinds = {row[name].split(":")[0] for name in (MODULES, *CHECKS)}
    if kinds & set(FAILURES):
        return "different"
    if "refused" in kinds:
        return "refused"
    if "pass" in {row[name] for name in CHECKS}:
        return "pass in part" if kinds & {"not tested", "time-out", "in part"} else "pass"
    return next((kind for kind in ("time-out", "not tested") if kind in kinds), "nothing to test")


def summary(rows):
    counts = dict.fromkeys(["pass", "pass in part", "refused", "not tested", "time-out",
                            "nothing to test", "different"], 0)
    for row in rows:
        counts[category(row)] += 1
    return {"types": len(rows), **counts}


def write_counts(counts):
    """Into the table of docs/transformers.md."""
    text = DOCUMENTATION.read_text()
    text = re.sub(r"Of \d+ model types", f"Of {counts['types']} model types", text)
    for name, count in counts.items():
        text = re.sub(rf"^\| {name} \| \d+ \|", f"| {name} | {count} |", text, flags=re.MULTILINE)
    DOCUMENTATION.write_text(text)
