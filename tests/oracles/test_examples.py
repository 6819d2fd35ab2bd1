"""Examples with PyTorch and Transformers run and agree with both."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from run_example import run_example  # noqa: E402


def test_torch_module(tmp_path):
    printed = run_example("torch_module.py", tmp_path)
    assert "largest relative difference from PyTorch: outputs" in printed
    assert "step 60: loss" in printed


def test_transformers_model(tmp_path):
    assert "the same as with eager attention: True" in run_example("transformers_model.py", tmp_path)
