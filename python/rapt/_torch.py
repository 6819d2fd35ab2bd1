"""PyTorch tensors: gradients, graphs, transforms. Imported as soon as torch and rapt both are."""

from __future__ import annotations

import sys

import torch

from rapt import _core, attention, patterns
from rapt._torch_attend import attend_with_gradients
from rapt._torch_blocks import attend_bigbird, local
from rapt._torch_flash import flash_kvcache, flash_varlen
from rapt._torch_longformer import longformer
from rapt._torch_positions import axial, learned, rope
from rapt._torch_rules import (autocast, direct, draw_seed, number_of, observed, readable,
                               refuse_gradients, refuse_learnt)
from rapt.bias import arrays_of

__all__ = ["added", "attend", "attend_bigbird", "axial", "direct", "flash_kvcache", "flash_varlen",
           "known_true", "learned", "local", "longformer", "observed", "readable", "refuse_gradients",
           "refuse_learnt", "rope"]

patterns.compiling = torch.compiler.is_compiling
attention.side = sys.modules[__name__]


def attend(q, k, v, how, layout, wanted):
    """Straight into the core where nothing watches; otherwise through the operators."""
    if not (isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        attention.refuse_mixed("attend", q=q, k=k, v=v)
    _, _, _, bias, relative_values, rotations, sinks, dropout, seed, strict, context = how
    if bias is relative_values is rotations is sinks:  # None, all of them
        straight = direct(q, k, v)
    else:
        straight = direct(q, k, v, relative_values, rotations, sinks, *arrays_of(bias))
    if not straight:
        return attend_with_gradients(*autocast(q, k, v), how, layout, wanted)
    if dropout and seed is None:
        how = how[:8] + (number_of(draw_seed()), strict, context)
    return _core.attend(q, k, v, how, layout, wanted)


def added(mask):
    return torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill(~mask, -torch.inf)


def known_true(fact) -> bool:
    return readable(fact) and bool(fact)
