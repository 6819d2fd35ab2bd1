"""Fixtures of several files."""

import pytest

from model_folders import write_gpt2


@pytest.fixture
def folder(tmp_path):
    return write_gpt2(tmp_path / "gpt2")
