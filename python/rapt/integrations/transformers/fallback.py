"""Warnings of calls that still run Transformers' own attention, once for each reason."""

from __future__ import annotations

import warnings


def warn(module: object, reason: str) -> None:
    warnings.warn(f"accelerate: {type(module).__name__} runs Transformers' own attention: {reason}",
                  stacklevel=3)
