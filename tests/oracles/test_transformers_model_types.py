"""Model types of Transformers under attn_implementation="rapt": a sample in every run, all of them by
`.venv/bin/python tests/oracles/model_types.py`, which writes model_types.csv."""

import json
import pathlib
import subprocess
import sys

import pytest

import model_types

# Decoders with windows, chunks, sinks, soft-caps, latent and sparse attention, hybrids, encoders, both,
# two towers, a vision tower, and one that is refused.
SAMPLE = ["llama", "gemma2", "gpt_oss", "llama4_text", "deepseek_v3", "deepseek_v32", "deepseek_v4",
          "bamba", "modernbert", "t5", "whisper", "bridgetower", "clip", "bloom"]


@pytest.fixture(scope="module")
def rows():
    """In one process of its own: the walk changes what "eager" makes of f64."""
    script = pathlib.Path(model_types.__file__)
    done = subprocess.run([sys.executable, script, *SAMPLE], check=True, capture_output=True,
                          text=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"model')]
    return {row["model type"]: row for row in found}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_does_what_eager_attention_does_or_is_refused(name, rows):
    table = {row["model type"]: row for row in model_types.read_table()}
    for check in model_types.CHECKS:
        assert not rows[name][check].startswith(("DIFFERENT", "ERROR")), (check, rows[name][check])
        assert rows[name][check].split(":")[0] == table[name][check].split(":")[0], check


def test_no_model_type_in_the_table_differs_from_eager_attention():
    table = model_types.read_table()
    counts = model_types.summary(table)
    assert counts["fail"] == 0
    assert counts["pass every check that applies"] > 250
    assert counts["types"] == len(table) > 600


def test_every_verdict_in_the_table_has_a_reason():
    for row in model_types.read_table():
        for check in model_types.CHECKS:
            kind, _, reason = row[check].partition(": ")
            assert kind == "pass" or reason, (row["model type"], check)
