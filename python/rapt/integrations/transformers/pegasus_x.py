"""Pegasus-X: blocks of tokens and the global tokens, in one call each."""

from __future__ import annotations

import types
from typing import Any

import torch
from transformers.models.pegasus_x.modeling_pegasus_x import PegasusXGlobalLocalAttention

import rapt
from rapt._torch.modes import readable
from rapt.integrations.transformers import fallback
from rapt.integrations.transformers.traced import keep_length
from rapt.integrations.transformers.weights import wants_weights


def replace(model: Any) -> int:
    """Replaces the attention modules and returns how many there are."""
    found = [m for m in model.modules() if isinstance(m, PegasusXGlobalLocalAttention)]
    for module in found:
        if not hasattr(module, "forward_of_transformers"):
            module.forward_of_transformers = module.forward
            module.forward = types.MethodType(_forward, module)
    return len(found)


def _forward(self, token_hidden_states, global_hidden_states, attention_mask=None, **kwargs):
    """attention_mask [batch, tokens]: 0 for a token, the smallest number of the type for padding."""
    if wants_weights(self, kwargs.get("output_attentions")):
        fallback.warn(self, "attention weights are asked for")
        return self.forward_of_transformers(token_hidden_states, global_hidden_states,
                                            attention_mask, **kwargs)
    token_hidden_states = keep_length(token_hidden_states, type(self).__name__)
    both = torch.cat([global_hidden_states, token_hidden_states], 1)
    q, k, v = (project(both).unflatten(-1, (self.num_heads, self.head_dim))
               for project in (self.q_proj, self.k_proj, self.v_proj))
    count, tokens = global_hidden_states.shape[1], token_hidden_states.shape[1]
    how = {"scale": self.scaling, "dropout": self.dropout if self.training else 0.0,
           "layout": "blhd", "bias": _bias(attention_mask, count)}
    blocks = [count] + [self.block_size] * (tokens // self.block_size)
    seen = rapt.documents(blocks) | rapt.tokens(list(range(count)))
    local = rapt.attend(q[:, count:], k, v, seen, **how)
    everywhere = rapt.attend(q[:, :count], k, v, **how)
    return self.out_proj(local.flatten(2)), self.out_proj(everywhere.flatten(2)), None


def _bias(attention_mask, global_tokens):
    """[batch, 1, 1, keys]; None if nothing is padding. Never None in a trace: a later call may have
    padding even if its example has none."""
    if attention_mask is None or readable(attention_mask) and not bool(attention_mask.any()):
        return None
    hidden = torch.nn.functional.pad(attention_mask != 0, (global_tokens, 0))
    numbers = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, -torch.inf)
    return rapt.dense_bias(numbers[:, None, None], fixed=True)
