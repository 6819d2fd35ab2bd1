"""Model types of Transformers under attn_implementation="rapt": a sample in every run, all of them by
`.venv/bin/python tests/oracles/in_transformers/model_types.py`, which writes model_types.csv."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import torch
import transformers

import model_table
import model_types
import tiny_inputs
import tiny_models
from attention_modules import Reached

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
    table = {row["model type"]: row for row in model_table.read_table()}
    for check in (model_table.MODULES, *model_table.CHECKS):
        assert not rows[name][check].startswith(("DIFFERENT", "ERROR")), (check, rows[name][check])
        assert rows[name][check].split(":")[0] == table[name][check].split(":")[0], check


def test_no_model_type_in_the_table_differs_from_eager_attention():
    counts = model_table.summary(model_table.read_table())
    assert counts == {"types": 622, "pass": 364, "pass in part": 53, "refused": 97,
                      "not tested": 85, "time-out": 0, "nothing to test": 23,
                      "different": 0}


def test_the_documentation_has_the_counts_of_the_table():
    text = (pathlib.Path(__file__).parents[3] / "docs" / "transformers.md").read_text()
    for name, count in model_table.summary(model_table.read_table()).items():
        assert name == "types" and f"Of {count} model types" in text or f"| {name} | {count} |" in text


class Broken(transformers.LlamaForCausalLM):
    """Builds in eager attention alone."""

    @classmethod
    def _from_config(cls, config, attn_implementation):
        if attn_implementation == "rapt":
            raise RuntimeError("a defect of rapt")
        return transformers.LlamaForCausalLM._from_config(
            config, attn_implementation=attn_implementation)


def test_a_crash_of_rapt_is_a_failure_once_eager_attention_works():
    found = model_types.build(transformers.LlamaConfig, Broken, decoder=False)
    assert found == "ERROR: RuntimeError: a defect of rapt"
    assert model_table.category(model_types.all_checks(found)) == "different"


def llama():
    config = tiny_models.tiny_config(transformers.LlamaConfig)
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("served, verdict", [
    (2, "pass: 2 modules"),
    (1, "in part: 1 of 2 ran without rapt (model.layers.1.self_attn)"),
    (0, "in part: 2 of 2 ran without rapt (model.layers.0.self_attn, model.layers.1.self_attn)")])
def test_a_module_that_runs_without_rapt_is_counted(served, verdict):
    model = llama()
    reached = Reached(model)
    for module in list(reached.modules.values())[:served]:
        module.q_proj.register_forward_hook(lambda *_, module=module: reached.call(module))
    model(input_ids=torch.ones(1, 4, dtype=torch.long))
    assert reached.verdict() == verdict


def test_a_module_that_does_not_run_makes_a_type_pass_in_part():
    model = llama()
    reached = Reached(model)
    model.model.layers[1] = torch.nn.Identity()
    model.model.layers[0].self_attn.q_proj.register_forward_hook(
        lambda *_: reached.call(model.model.layers[0].self_attn))
    model.config.num_hidden_layers = 1
    model(input_ids=torch.ones(1, 4, dtype=torch.long))
    found = reached.verdict("no images")
    assert found == "in part: 1 of 2 did not run (model.layers.1.self_attn); no images"
    row = {**model_types.all_checks("pass"), model_table.MODULES: found}
    assert model_table.category(row) == "pass in part"


def test_inputs_reach_the_tower_of_a_model_that_may_see_images():
    config = tiny_models.tiny_config(transformers.LlavaConfig)
    model = transformers.LlavaForConditionalGeneration._from_config(
        config, attn_implementation="eager").eval()
    given, complaint = tiny_inputs.fitting(model)
    reached = Reached(model)
    model(**given)
    assert reached.ran == set(reached.modules) and len(reached.ran) == 4 and not complaint
    assert (given["input_ids"] == config.image_token_id).sum() == 2 * 16


def ended_by(number):
    return lambda *_: os.kill(os.getpid(), number)


def raised(*_):
    raise RuntimeError("a defect")


@pytest.mark.parametrize("walk, verdict", [
    (ended_by(signal.SIGKILL), "ERROR: the process was ended by SIGKILL"),
    (ended_by(signal.SIGPROF), "time-out: nothing after 240 s"),
    (lambda *_: os._exit(3), "ERROR: the process ended with status 3"),
    (raised, "ERROR: RuntimeError: a defect")])
def test_a_process_without_a_verdict_is_a_failure_or_a_time_out(walk, verdict, monkeypatch):
    monkeypatch.setattr(model_types, "walk", walk)
    assert model_types.walk_apart("llama", []) == model_types.all_checks(verdict)


def test_every_verdict_in_the_table_has_a_reason():
    for row in model_table.read_table():
        for check in (model_table.MODULES, *model_table.CHECKS):
            kind, _, reason = row[check].partition(": ")
            assert kind == "pass" or reason, (row["model type"], check)
