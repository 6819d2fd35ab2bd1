"""PyTorch tensors: gradients, torch.compile. Imported only when a caller passes a tensor."""

from __future__ import annotations

import torch
from torch.nn import Parameter

from rapt import _core
from rapt._torch_attend import attend_with_gradients
from rapt._torch_blocks import attend_bigbird, local
from rapt._torch_longformer import longformer
from rapt._torch_positions import axial, learned, rope
from rapt._torch_rules import draw_seed, has_gradient, refuse_gradients

__all__ = ["added", "attend", "attend_bigbird", "axial", "known_true", "learned", "local",
           "longformer", "refuse_gradients", "rope", "watched"]

_PLAIN = (torch.Tensor, Parameter)
_is_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_transforms = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


def attend(q, k, v, how, layout, wanted):
    """Straight into the core where nothing watches; otherwise through the operators."""
    if not (isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        raise TypeError(f"attend: q is a Tensor, k a {type(k).__name__} and v a {type(v).__name__}, "
                        "expected all of one library")
    pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed, strict, context = how
    if dropout and seed is None:
        how = how[:8] + (draw_seed(), strict, context)
    if (_is_compiling() or type(q) not in _PLAIN or _modes() or _transforms()
            or has_gradient(q, k, v, bias, relative_values, sinks)):
        return attend_with_gradients(q, k, v, how, layout, wanted)
    return _core.attend(q, k, v, how, layout, wanted)


def watched(tensor) -> bool:
    """Whether somebody traces the call, so that nothing may depend on numbers."""
    return _is_compiling() or type(tensor) not in _PLAIN or bool(_modes()) or _transforms()


def added(mask):
    return torch.zeros(mask.shape, dtype=torch.float32).masked_fill_(~mask, -torch.inf)


def known_true(fact) -> bool:
    return not watched(fact) and bool(fact)
