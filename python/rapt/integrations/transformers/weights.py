"""Attention weights for those who ask: quadratic memory, by their nature."""

from __future__ import annotations

import torch
from transformers.utils import output_capturing


def wants_weights(module, output_attentions) -> bool:
    """Asked for in the call, or by the hooks with which Transformers collects outputs."""
    if output_attentions:
        return True
    collected = output_capturing._active_collector.get()
    if collected is not None:
        return any("attentions" in name for name in collected)
    return bool(getattr(getattr(module, "config", None), "output_attentions", False))


def attention_weights(query, key, mask, position_bias=None, scale=None, softcap=0.0, sinks=None):
    """[batch, heads, queries, keys] as eager attention computes them; a row that a bool mask hides
    altogether is zeros."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    z = (query @ key.mT) * (query.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    if position_bias is not None:
        z = z + position_bias[..., :z.shape[-1]]
    if mask is not None:
        z = z.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else z + mask
    if sinks is not None:
        last = sinks.expand(z.shape[0], z.shape[1], z.shape[2], 1).to(z.dtype)
        z = torch.cat([z, last], -1)
    p = z.softmax(-1, dtype=torch.float32).to(query.dtype)
    if mask is not None and mask.dtype == torch.bool:
        p = p.nan_to_num(0.0)
    return p if sinks is None else p[..., :-1]
