"""What a replaced module still leaves to Transformers, reported once for each reason."""

from __future__ import annotations

import warnings


def warn(module, reason: str) -> None:
    warnings.warn(f"accelerate: {type(module).__name__} runs Transformers' own attention: {reason}",
                  stacklevel=3)
