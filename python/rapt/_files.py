"""Files that are complete or absent."""

from __future__ import annotations

import os
from typing import Union


def write_whole(path: Union[str, os.PathLike[str]], text: str) -> None:
    """Writes a file next to the path and renames it."""
    unfinished = f"{os.fspath(path)}.part-{os.getpid()}"
    file = open(unfinished, "x", encoding="utf-8")  # "x": never overwrites another file
    try:
        with file:
            file.write(text)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
