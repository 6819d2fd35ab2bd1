"""Attention weights, if they are asked for. They take quadratic memory."""

from __future__ import annotations

import sys

import torch
from transformers.utils import output_capturing

# BridgeTower always returns its weights; output_attentions does not reach its layers.
_ALWAYS = {"BridgeTowerSelfAttention", "BridgeTowerCrossAttention"}


def wants_weights(module, output_attentions) -> bool:
    """Asked for in the call, or by the hooks with which Transformers collects outputs."""
    if output_attentions or type(module).__name__ in _ALWAYS:
        return True
    collected = output_capturing._active_collector.get()
    if collected is not None:
        return any("attentions" in name for name in collected)
    return bool(getattr(getattr(module, "config", None), "output_attentions", False))


def attention_weights(module, query, key, value, mask, **how):
    """[batch, heads, queries, keys] from the model's own eager attention, which decides how sinks and
    masks count. Eager attention does not take a bool mask: here it hides keys, and a row that it hides
    entirely is zeros."""
    eager = getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)
    if eager is not None and (mask is None or mask.dtype != torch.bool):
        mask = None if mask is None else mask + 0
        return eager(module, query, key, value, mask, dropout=0.0, **how)[1]
    return _softmax(query, key, mask, **how)


def _softmax(query, key, mask, scaling=None, softcap=None, s_aux=None, sinks=None,
             position_bias=None, **_):
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    z = (query @ key.mT) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    if position_bias is not None:
        z = z + position_bias[..., :z.shape[-1]]
    if mask is not None:
        z = z.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else z + mask
    sinks = s_aux if s_aux is not None else sinks
    if sinks is not None:
        last = (sinks if sinks.ndim == 4 else sinks.reshape(1, -1, 1, 1)).to(z.dtype)
        z = torch.cat([z, last.expand(*z.shape[:-1], 1)], -1)
    p = z.softmax(-1, dtype=torch.float32).to(query.dtype)
    if mask is not None and mask.dtype == torch.bool:
        p = p.nan_to_num(0.0)
    return p if sinks is None else p[..., :-1]
