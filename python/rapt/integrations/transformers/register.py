"""attn_implementation="rapt"."""

from __future__ import annotations

import torch
from transformers import AttentionInterface, AttentionMaskInterface

import rapt
from rapt.integrations.transformers.masks import rapt_mask
from rapt.integrations.transformers.pattern_mask import PatternMask
from rapt.integrations.transformers.support import refuse_models_without_the_interface
from rapt.integrations.transformers.weights import attention_weights, wants_weights

# Arguments that models send along and that do not change attention, or that the mask contains already.
_HARMLESS = {"position_ids", "cache_position", "use_cache", "output_attentions", "return_dict",
             "output_hidden_states", "sliding_window", "training", "num_items_in_batch",
             "output_router_logits", "logits_to_keep", "is_first_iteration", "deterministic",
             "grid_thw", "image_sizes", "input_ids",
             # generate() of Parakeet and LASR passes on its arguments; temperature and top_k could mean
             # attention elsewhere.
             "max_new_tokens", "min_new_tokens", "max_length", "num_beams", "do_sample",
             "cache_implementation", "eos_token_id", "pad_token_id", "bos_token_id",
             "return_dict_in_generate", "output_logits", "output_scores"}


def register(name: str = "rapt") -> None:
    """Makes attn_implementation=name work: masks that rapt knows become patterns, sliding windows are
    never dense, and the kernels compute soft-caps, sinks and learned biases. A model that does not use
    Transformers' AttentionInterface raises a ValueError with its name."""
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, rapt_mask)
    refuse_models_without_the_interface(name)


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, softcap=None, s_aux=None, sinks=None, position_bias=None,
                      indices=None, **kwargs):
    """query [batch, heads, queries, dim], key and value [batch, kv_heads, keys, dim]; returns
    ([batch, queries, heads, dim], weights or None), as the model's eager attention does."""
    _refuse_unknown(module, kwargs)
    # Without a mask every query sees every key, whatever the module's is_causal says: eager attention
    # has nothing but the mask.
    if attention_mask is None and is_causal and query.shape[2] > 1:
        raise ValueError(f"rapt attention: {type(module).__name__} sends is_causal=True and no mask, "
                         "expected a mask, without which eager attention sees every key")
    mask = attention_mask if indices is None else _only(attention_mask, indices, key)
    weights = None
    if wants_weights(module, kwargs.get("output_attentions")):
        sent = {"softcap": softcap, "s_aux": s_aux, "sinks": sinks, "position_bias": position_bias}
        weights = attention_weights(module, query, key, value, mask, scaling=scaling, **kwargs,
                                    **{name: x for name, x in sent.items() if x is not None})
    sinks = _sinks(module, s_aux if s_aux is not None else sinks)
    how = {"scale": scaling, "softcap": softcap or None}
    if dropout and module.training:
        how["dropout"] = dropout
    run = _by_pattern if isinstance(mask, PatternMask) else _by_numbers
    return run(query, key, value, mask, position_bias, sinks, how).contiguous(), weights


def _refuse_unknown(module, kwargs):
    for name, given in kwargs.items():
        if given is not None and given is not False and name not in _HARMLESS:
            raise ValueError(f"rapt attention: {type(module).__name__} sends {name}, which is not "
                             "understood; expected one of the attention arguments of Transformers "
                             "5.23; use attn_implementation=\"eager\" for this model")


def _sinks(module, sinks):
    """[heads] becomes [1, heads, 1, 1], because there may also be one for each query."""
    if sinks is None and getattr(module, "sinks", None) is not None:
        raise ValueError(f"rapt attention: {type(module).__name__} has sinks and does not send them, "
                         "expected s_aux; use attn_implementation=\"eager\" for this model")
    return sinks if sinks is None or sinks.ndim == 4 else sinks.reshape(1, -1, 1, 1)


def _only(mask, indices, key):
    """The mask with every key hidden that is not among indices [batch, queries, chosen]."""
    if mask is None or isinstance(mask, PatternMask):
        mask = key.new_zeros(1) if mask is None else mask.dense()
    hidden = torch.ones(*indices.shape[:2], key.shape[2], dtype=torch.bool,
                        device=key.device)
    hidden = hidden.scatter(-1, indices.long(), False)[:, None]
    if mask.dtype == torch.bool:
        return mask & ~hidden
    return mask.masked_fill(hidden, torch.finfo(mask.dtype).min)


def _tokens_first(*tensors):
    return [x.transpose(1, 2) for x in tensors]


@torch.compiler.disable  # a graph with patterns would be compiled again for each token
def _by_pattern(query, key, value, mask, position_bias, sinks, how):
    """Items with the same pattern are one call. A row of padding that sees no key is the mean of all
    values, as a softmax of equal numbers gives."""
    if not mask.intact or mask.shape != (query.shape[0], 1, query.shape[2], key.shape[2]):
        return _by_numbers(query, key, value, mask.dense(), position_bias, sinks, how)
    q, k, v = _tokens_first(query, key[:, :, :mask.keys], value[:, :, :mask.keys])
    first = mask.patterns[0]
    if all(p == first for p in mask.patterns[1:]):
        calls = [(q, k, v, first, _bias(position_bias, k), _item(sinks, None))]
    else:
        calls = [(q[i:i + 1], k[i:i + 1], v[i:i + 1], pattern, _bias(position_bias, k, i),
                  _item(sinks, i)) for i, pattern in enumerate(mask.patterns)]
    found = [_attend(*call, how, want_empty=mask.padded) for call in calls]
    out = found[0][0] if len(found) == 1 else torch.cat([x for x, _ in found])
    if not mask.padded or sinks is not None:
        return out
    empty = torch.cat([x for _, x in found])
    return torch.where(empty, _mean(value, query.shape[1]), out)


def _attend(q, k, v, pattern, bias, sinks, how, want_empty=False):
    """The output and, if wanted, which of its rows see no key. A sink that differs between queries is
    applied afterwards."""
    of_heads = sinks is None or sinks.shape[0] == sinks.shape[2] == 1
    if of_heads and not want_empty:
        return rapt.attend(q, k, v, pattern, bias=bias, layout="blhd",
                           sinks=None if sinks is None else sinks.flatten(), **how), None
    out, lse = rapt.attend(q, k, v, pattern, bias=bias, layout="blhd", return_lse=True,
                           sinks=sinks.flatten() if of_heads and sinks is not None else None, **how)
    if not of_heads:
        out = out * (lse - sinks[..., 0]).sigmoid().transpose(1, 2)[..., None].to(out.dtype)
    return out, (lse == -torch.inf).transpose(1, 2)[..., None]


def _mean(value, heads):
    """[batch, 1, heads, dim]"""
    mean = value.mean(2, keepdim=True)
    return mean.repeat_interleave(heads // value.shape[1], 1).transpose(1, 2)


def _item(tensor, item):
    return tensor if tensor is None or item is None or tensor.shape[0] == 1 else tensor[item:item + 1]


def _bias(position_bias, k, item=None):
    """[batch or 1, heads, queries, keys], cut to the number of keys."""
    if position_bias is None:
        return None
    numbers = _item(position_bias[..., :k.shape[1]], item)
    return rapt.dense_bias(numbers, fixed=not numbers.requires_grad)


def _by_numbers(query, key, value, mask, position_bias, sinks, how):
    """A dense mask, bool or added. A row that sees no key is the mean of the values where its mask is
    largest: next to such a number a logit is less than a rounding error. It is zeros if the mask is bool
    or -inf everywhere."""
    q, k, v = _tokens_first(query, key, value)
    if mask is None:
        return _attend(q, k, v, None, _bias(position_bias, k), sinks, how)[0]
    if mask.shape[-1] not in (1, k.shape[1]):
        raise ValueError(f"rapt attention: a mask of {mask.shape[-1]} keys for {k.shape[1]} keys")
    numbers, hidden = mask, ~mask if mask.dtype == torch.bool else _is_hidden(mask)
    if mask.dtype == torch.bool:
        numbers = torch.zeros(mask.shape, device=mask.device)
    empty = hidden.all(-1, keepdim=True)
    largest = numbers.detach().amax(-1, keepdim=True)
    behind = hidden & ~(empty & (numbers == largest))
    numbers = numbers.float().masked_fill(hidden, 0.0)
    if position_bias is not None:
        numbers = (numbers + position_bias[..., :k.shape[1]]).masked_fill(empty, 0.0)
    numbers = numbers.masked_fill(behind, -torch.inf)
    bias = rapt.dense_bias(numbers, fixed=not numbers.requires_grad)
    rows = empty.transpose(1, 2)
    out, _ = _attend(q.masked_fill(rows, 0.0), k, v, None, bias, sinks, how)  # equal logits
    if mask.dtype != torch.bool and sinks is None:
        rows = rows & (largest == -torch.inf).transpose(1, 2)
    return out.masked_fill(rows, 0.0)


def _is_hidden(mask):
    """Half of the type's smallest number is beyond any logit; smaller numbers are masks."""
    return mask <= torch.finfo(mask.dtype).min / 2
