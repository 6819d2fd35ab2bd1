"""The Python blocks of README.md and docs/, in their order; a file is one session."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sessions(with_torch):
    """(file, code) of every file; without torch only up to the block that imports it, or that loads a
    model which a package of the oracles carries."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = BLOCK.findall(path.read_text())
        if not with_torch:
            first = next((i for i, block in enumerate(blocks)
                          if "import torch" in block or "rapt.load(" in block), len(blocks))
            blocks = blocks[:first]
        if blocks:
            yield path.name, "\n".join(blocks)
