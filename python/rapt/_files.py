"""Files that are whole or not there."""

from __future__ import annotations

import os


def write_whole(path, text: str) -> None:
    unfinished = os.fspath(path) + ".part"
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(unfinished, path)
