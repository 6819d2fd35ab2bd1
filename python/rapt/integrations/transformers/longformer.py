"""Longformer and LED: self-attention in one call instead of a chain of chunks."""

from __future__ import annotations

import types
from typing import Any

import torch
from transformers.models.led.modeling_led import LEDEncoderSelfAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

import rapt
from rapt.integrations.transformers import fallback


def replace(model: Any) -> int:
    """Replaces the attention modules and returns how many there are."""
    found = [m for m in model.modules()
             if isinstance(m, (LongformerSelfAttention, LEDEncoderSelfAttention))]
    for module in found:
        if not hasattr(module, "forward_of_transformers"):
            module.forward_of_transformers = module.forward
            module.forward = types.MethodType(_forward, module)
    return len(found)


def _forward(self, hidden_states, attention_mask=None, is_index_masked=None,
             is_index_global_attn=None, is_global_attn=None, output_attentions=False):
    if output_attentions:  # only the chain of chunks has the weights
        fallback.warn(self, "attention weights are asked for")
        return self.forward_of_transformers(hidden_states, attention_mask, is_index_masked,
                                            is_index_global_attn, is_global_attn, True)
    shape = (*hidden_states.shape[:2], self.num_heads, self.head_dim)
    q, k, v = (project(hidden_states).view(shape) for project in (self.query, self.key, self.value))
    projections = (None, None, None)
    if is_global_attn:
        projections = _global_projections(self, hidden_states, is_index_global_attn, shape)
    # -10000 padding, 0 local, 10000 global
    classes = attention_mask.sign().long() + 1
    out = rapt.attend_longformer(q, k, v, *projections, window=self.one_sided_attn_window_size,
                                 classes=classes, dropout=self.dropout if self.training else 0.0,
                                 layout="blhd")
    return (out.reshape(hidden_states.shape),)


def _global_projections(self, hidden_states, is_global, shape):
    """Queries are computed for global tokens only."""
    asked = self.query_global(hidden_states[is_global])
    query = torch.zeros_like(hidden_states, dtype=asked.dtype)
    query = query.masked_scatter(is_global[..., None].expand_as(query), asked)
    return (query.view(shape), self.key_global(hidden_states).view(shape),
            self.value_global(hidden_states).view(shape))
