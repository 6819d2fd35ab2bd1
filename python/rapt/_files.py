"""Files that are whole or not there."""

from __future__ import annotations

import os


def write_whole(path, text: str) -> None:
    unfinished = f"{os.fspath(path)}.part-{os.getpid()}"
    file = open(unfinished, "x", encoding="utf-8")  # never a file of somebody else
    try:
        with file:
            file.write(text)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
