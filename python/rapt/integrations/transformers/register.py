"""attn_implementation="rapt"."""

from __future__ import annotations

import torch
from transformers import AttentionInterface, AttentionMaskInterface

import rapt
from rapt.integrations.transformers.masks import PatternMask, rapt_mask
from rapt.integrations.transformers.weights import attention_weights

# What models send along that says nothing about this call, or that the mask says already.
_HARMLESS = {"position_ids", "cache_position", "use_cache", "output_attentions", "return_dict",
             "output_hidden_states", "sliding_window", "training", "num_items_in_batch",
             "output_router_logits", "logits_to_keep", "is_first_iteration", "deterministic"}


def register(name: str = "rapt") -> None:
    """Makes attn_implementation=name work: masks become patterns wherever they have a name, sliding
    windows never become dense, soft-caps, sinks and learned biases go into the kernels."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, rapt_mask)


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, softcap=None, s_aux=None, position_bias=None, **kwargs):
    """query [batch, heads, queries, dim], key and value [batch, kv_heads, keys, dim]; returns
    ([batch, queries, heads, dim], weights or None)."""
    for name, given in kwargs.items():
        if given is not None and given is not False and name not in _HARMLESS:
            raise ValueError(f"rapt attention: {type(module).__name__} sends {name}, which is not "
                             "understood; expected one of the attention arguments of Transformers "
                             "5.22")
    how = {"scale": scaling, "softcap": softcap or 0.0, "sinks": s_aux}
    mask = _mask(module, query, key, attention_mask, is_causal, kwargs.get("sliding_window"))
    weights = None
    if kwargs.get("output_attentions"):
        weights = attention_weights(query, key, mask, position_bias, **how)
    if dropout:
        how["dropout"] = dropout
    if isinstance(mask, PatternMask):
        out = _by_pattern(query, key[:, :, :mask.keys], value[:, :, :mask.keys], mask.patterns,
                          position_bias, how)
    else:
        out = _by_numbers(query, key, value, mask, position_bias, how)
    return out.contiguous(), weights


def _mask(module, query, key, attention_mask, is_causal, sliding_window):
    """No mask at all means what the module says: causal, or everyone sees everyone."""
    if attention_mask is not None:
        return attention_mask
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    pattern = rapt.full()
    if causal and query.shape[2] > 1:
        pattern = rapt.causal()
    if causal and sliding_window:
        pattern = pattern & rapt.window(sliding_window - 1, 2**62)
    return PatternMask([pattern], key.shape[2])


def _tokens_first(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def _by_pattern(query, key, value, patterns, position_bias, how):
    """Items with the same pattern are one call."""
    q, k, v = _tokens_first(query, key, value)
    first = patterns[0]
    if all(p == first for p in patterns[1:]):
        return rapt.attend(q, k, v, first, bias=_bias(position_bias, k), layout="blhd", **how)
    outs = [rapt.attend(q[i:i + 1], k[i:i + 1], v[i:i + 1], pattern,
                        bias=_bias(position_bias, k, i), layout="blhd", **how)
            for i, pattern in enumerate(patterns)]
    return torch.cat(outs)


def _bias(position_bias, k, item=None):
    """[batch or 1, heads, queries, keys], cut to the keys there are."""
    if position_bias is None:
        return None
    numbers = position_bias[..., :k.shape[1]]
    if item is not None and numbers.shape[0] > 1:
        numbers = numbers[item:item + 1]
    return rapt.dense_bias(numbers, fixed=not numbers.requires_grad)


def _by_numbers(query, key, value, mask, position_bias, how):
    """A dense mask, bool or added; a row that sees nothing is opened and made zero afterwards."""
    numbers = mask
    if mask.dtype == torch.bool:
        numbers = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    seen = (numbers != -torch.inf).any(-1)
    numbers = numbers.masked_fill(~seen[..., None], 0.0)
    if position_bias is not None:
        numbers = numbers + position_bias[..., :numbers.shape[-1]]
    keys = numbers.shape[-1]
    q, k, v = _tokens_first(query, key[:, :, :keys], value[:, :, :keys])
    bias = rapt.dense_bias(numbers, fixed=not numbers.requires_grad)
    out = rapt.attend(q, k, v, bias=bias, layout="blhd", **how)
    return out.masked_fill(~seen.transpose(1, 2)[..., None], 0.0)
