"""When gradients are wanted, and where seeds come from."""

from __future__ import annotations

import torch

_grad_enabled = torch.is_grad_enabled


def tensors_of(bias):
    """Every array of a Bias."""
    if bias is None:
        return ()
    kerple = bias.kerple[1:] if bias.kerple else (None, None)
    return (bias.alibi, *kerple, bias.table and bias.table[0], bias.keys,
            bias.dense and bias.dense[0])


def has_gradient(q, k, v, bias=None, *others):
    if not _grad_enabled():
        return False
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return True
    if bias is None and all(x is None for x in others):
        return False
    return any(getattr(x, "requires_grad", False) for x in (*tensors_of(bias), *others))


def refuse_gradients(where, *tensors):
    if _grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors):
        raise ValueError(f"{where}: an operand requires gradients and there are none here; use "
                         "torch.no_grad() or detach()")


def draw_seed() -> int:
    """From torch's generator, so torch.manual_seed decides."""
    return int(torch.randint(0, 2**62, (1,)).item())
