"""What rapt's functions call for PyTorch tensors. Imported as soon as torch and rapt both are."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from rapt import _core, _tensors
from rapt._torch.attend import attend_with_gradients
from rapt._torch.blocks import attend_bigbird, attend_reformer_local
from rapt._torch.flash import flash_kvcache, flash_varlen
from rapt._torch.longformer import attend_longformer
from rapt._torch.modes import (autocast, plain_call, readable, refuse_gradients, refuse_requires_grad,
                               traced)
from rapt._torch.positions import axial, learned, rope
from rapt._torch.seeds import draw_seed, number_of
from rapt.attention import patterns
from rapt.attention.bias import arrays_of

__all__ = ["added", "attend", "attend_bigbird", "attend_longformer", "attend_reformer_local", "axial",
           "flash_kvcache", "flash_varlen", "known_true", "learned", "readable", "refuse_gradients",
           "refuse_requires_grad", "rope", "traced"]

patterns.compiling = torch.compiler.is_compiling
_tensors.functions = sys.modules[__name__]


def attend(q: Tensor, k: Tensor, v: Tensor, how: Any, layout: str, wanted: int) -> Any:
    """Straight into the core for a plain call, else through the operators."""
    if not (isinstance(k, Tensor) and isinstance(v, Tensor)):
        _tensors.refuse_mixed("attend", q=q, k=k, v=v)
    _, _, _, bias, relative_values, rotations, sinks, dropout, seed, strict, context = how
    if bias is relative_values is rotations is sinks:  # None, all of them
        plain = plain_call(q, k, v)
    else:
        plain = plain_call(q, k, v, relative_values, rotations, sinks, *arrays_of(bias))
    if not plain:
        q, k, v = autocast(q, k, v)
        return attend_with_gradients(q, k, v, how, layout, wanted)
    if dropout and seed is None:
        how = how[:8] + (number_of(draw_seed()), strict, context)
    return _core.attend(q, k, v, how, layout, wanted)


def added(mask: Tensor) -> Tensor:
    """0 where a bool mask keeps, -inf where it does not."""
    return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill(~mask, -torch.inf)


def known_true(fact: Tensor) -> bool:
    """Whether it may be read, and is true."""
    return readable(fact) and bool(fact)
