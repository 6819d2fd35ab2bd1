"""Attention weights for those who ask: quadratic memory, by their nature."""

from __future__ import annotations

import torch

from rapt.integrations.transformers.masks import PatternMask


def attention_weights(query, key, mask, position_bias=None, scale=None, softcap=0.0, sinks=None):
    """[batch, heads, queries, keys]; a row that sees nothing is zeros."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    z = (query @ key.mT).float() * (query.shape[3] ** -0.5 if scale is None else scale)
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    if position_bias is not None:
        z = z + position_bias[..., :z.shape[-1]]
    if isinstance(mask, PatternMask):
        z[..., mask.keys:] = -torch.inf
        z[..., :mask.keys].masked_fill_(~mask.dense(query.shape[2]), -torch.inf)
    elif mask is not None:
        z = z.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else z + mask
    if sinks is not None:
        z = torch.cat([z, sinks.float()[:, None, None].expand(z.shape[0], -1, z.shape[2], 1)], -1)
    p = z.softmax(-1).nan_to_num(0.0)
    return (p if sinks is None else p[..., :-1]).to(query.dtype)
