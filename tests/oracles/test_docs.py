"""What the documentation shows runs, PyTorch and Transformers included."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from doc_blocks import sessions  # noqa: E402

SESSIONS = dict(sessions(with_torch=True))


@pytest.mark.parametrize("name", SESSIONS)
def test_python_blocks_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(SESSIONS[name], name, "exec"), {})
