"""Seeds of dropout: given, or drawn from torch's generator."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor


def draw_seed() -> Tensor:
    """From torch's generator, so that torch.manual_seed decides and graphs draw again at each call."""
    return torch.randint(0, 2**62, ())


def number_of(seed: Any) -> int:
    """A seed as the core takes it."""
    return 0 if seed is None else int(seed) % 2**64


def as_seed(seed: Any, dropout: Any) -> Optional[Tensor]:
    """A seed as operators take it: None without dropout, else the given one or a new one."""
    if not dropout:
        return None
    if seed is None:
        return draw_seed()
    return seed if isinstance(seed, Tensor) else torch.tensor(_signed(seed))


def _signed(seed: Any) -> Any:
    """The seed as a signed 64-bit number, which is what a tensor holds."""
    return seed - 2**64 if seed >= 2**63 else seed
