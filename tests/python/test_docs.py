"""What the documentation shows runs."""

import pytest

from doc_blocks import sessions

SESSIONS = dict(sessions(with_torch=False))


@pytest.mark.parametrize("name", SESSIONS)
def test_python_blocks_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(SESSIONS[name], name, "exec"), {})


def test_there_are_blocks():
    assert {"README.md", "python.md"} <= set(SESSIONS)
