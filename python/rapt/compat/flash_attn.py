"""flash-attn's functions: [batch, tokens, heads, dim], causal from the bottom right corner."""

from __future__ import annotations

import sys

from rapt import _core, _given
from rapt.attention import attend, torch_side
from rapt.bias import alibi
from rapt.patterns import window

__all__ = ["flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"]

_ALL = 2**62


def _check(where, axes, slopes, **arrays):
    """q, k and v, or caches, with so many axes; slopes are an array or None."""
    for name, x in arrays.items():
        if not hasattr(x, "ndim") or not hasattr(x, "shape"):
            raise TypeError(f"{where}: {name} is a {type(x).__name__}, expected an array")
        if x.ndim != axes:
            raise ValueError(f"{where}: {name} has {x.ndim} axes, expected {axes}")
    if slopes is not None and getattr(slopes, "ndim", 0) not in (1, 2):
        raise TypeError(f"{where}: alibi_slopes is {_given.said(slopes)}, expected an array [heads] or [batch, heads]")


def _pattern(causal, window_size):
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise TypeError(f"flash_attn: window_size is {_given.said(window_size)}, expected (left, right)")
    left, right = (side if side >= 0 else _ALL for side in window_size)
    if _given.flag("flash_attn: causal", causal):
        right = min(right, 0)
    if left == _ALL and right == _ALL:
        return None
    return window(left, right)


def _joined(arrays, axis):
    first = arrays[0]
    return sys.modules["torch" if torch_side(first) else "numpy"].concatenate(arrays, axis)


def _attend(q, k, v, how):
    """Slopes may differ between batch items; then each is a call."""
    slopes = how.pop("alibi_slopes")
    how = {**how, "layout": "blhd", "return_lse": True}
    if slopes is None or slopes.ndim == 1:
        return attend(q, k, v, bias=None if slopes is None else alibi(slopes), **how)
    parts = [attend(q[i:i + 1], k[i:i + 1], v[i:i + 1], bias=alibi(slopes[i]), **how)
             for i in range(q.shape[0])]
    return tuple(_joined(x, 0) for x in zip(*parts))


def _how(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes):
    return {"pattern": _pattern(causal, window_size), "dropout": dropout_p, "scale": softmax_scale,
            "softcap": softcap, "alibi_slopes": alibi_slopes}


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                    softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q [batch, queries, heads, dim], k and v [batch, keys, kv_heads, dim]. With return_attn_probs
    (out, softmax_lse, None): probabilities are never stored. Always deterministic.

    >>> import numpy as np
    >>> x = np.ones((1, 9, 2, 8), np.float32)
    >>> flash_attn_func(x, x, x, causal=True, window_size=(4, 0)).shape
    (1, 9, 2, 8)
    """
    return_attn_probs = _given.flag("flash_attn: return_attn_probs", return_attn_probs)
    _check("flash_attn_func", 4, alibi_slopes, q=q, k=k, v=v)
    out, lse = _attend(q, k, v, _how(dropout_p, softmax_scale, causal, window_size, softcap,
                                     alibi_slopes))
    return (out, lse, None) if return_attn_probs else out


def _numbers(name, given):
    """Integers of a list or an array."""
    made = given.tolist() if hasattr(given, "tolist") else _given.list_of(f"flash_attn: {name}", given, "integers")
    return [_given.whole(f"flash_attn: {name}", x) for x in made]


def _lengths(name, cumulative, operand, rows):
    ends = _numbers(name, cumulative)
    lengths = [b - a for a, b in zip(ends, ends[1:])]
    if not ends or ends[0] != 0 or ends[-1] != rows or min(lengths, default=0) < 0:
        raise ValueError(f"flash_attn_varlen_func: {name} is {_given.shown(ends)}, expected numbers that "
                         f"begin with 0, never fall and end with the {rows} rows of {operand}")
    return lengths


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                           dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1),
                           softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):
    """Packed sequences: q [all queries, heads, dim], k and v [all keys, kv_heads, dim]; the
    cumulative lengths have one entry more than there are sequences."""
    if block_table is not None:
        raise ValueError("flash_attn_varlen_func: a block_table is given, expected none; rapt.KvCache "
                         "is paged")
    return_attn_probs = _given.flag("flash_attn: return_attn_probs", return_attn_probs)
    _check("flash_attn_varlen_func", 3, alibi_slopes, q=q, k=k, v=v)
    how = _how(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    side = torch_side(q)
    if side is not None and side.observed():  # lengths are numbers, which graphs have not
        out, lse = side.flash_varlen(q, k, v, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k), how)
    else:
        calls = pieces((q.shape[0], k.shape[0]), (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k),
                       how["pattern"], alibi_slopes)
        out, lse = _varlen(q, k, v, calls, how)
    return (out, lse, None) if return_attn_probs else out


def pieces(rows, cumulative, most, pattern, slopes):
    """The calls that packed sequences take: (queries, keys, pattern, slopes). One for all, unless their
    diagonals hang on corners of their own or their slopes differ. rows, cumulative and most are pairs,
    of queries and of keys."""
    lengths, key_lengths = (_lengths(f"cu_seqlens_{name}", ends, name, count)
                            for name, ends, count in zip("qk", cumulative, rows))
    most, key_most = (_given.whole(f"flash_attn: max_seqlen_{name}", x) for name, x in zip("qk", most))
    for name, found, limit in (("q", lengths, most), ("k", key_lengths, key_most)):
        if found and max(found) > limit:
            raise ValueError(f"flash_attn_varlen_func: max_seqlen_{name} is {limit}, but a sequence "
                             f"has {max(found)}")
    if len(lengths) != len(key_lengths):
        raise ValueError(f"flash_attn_varlen_func: cu_seqlens_q has {len(lengths)} sequences and cu_seqlens_k "
                         f"{len(key_lengths)}, expected as many")
    each = slopes is not None and slopes.ndim == 2
    everything = slice(None)
    if lengths == key_lengths and not each:
        documents = _core.documents(lengths)
        return [(everything, everything, documents if pattern is None else documents & pattern, slopes)]
    if pattern is None and slopes is None:
        return [(everything, everything, _core.documents(lengths, key_lengths), None)]
    made, at, key_at = [], 0, 0
    for i, (count, key_count) in enumerate(zip(lengths, key_lengths)):
        made.append((slice(at, at + count), slice(key_at, key_at + key_count), pattern,
                     slopes[i] if each else slopes))
        at, key_at = at + count, key_at + key_count
    return made


def _varlen(q, k, v, calls, how):
    outs, lses = [], []
    for queries, keys, pattern, slopes in calls:
        out, lse = _attend(q[None, queries], k[None, keys], v[None, keys],
                           {**how, "pattern": pattern, "alibi_slopes": slopes})
        outs.append(out[0])
        lses.append(lse[0])
    return (outs[0], lses[0]) if len(outs) == 1 else (_joined(outs, 0), _joined(lses, 1))


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None,
                            block_table=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    """Attention over caches [batch, slots, kv_heads, dim] of which item i holds cache_seqlens[i]
    tokens; new k and v are first written behind them, in place, rotated if cosines and sines are
    given. No gradients. num_splits is for others to choose; results do not depend on it."""
    if block_table is not None:
        raise ValueError("flash_attn_with_kvcache: a block_table is given, expected none; rapt.KvCache "
                         "is paged")
    if (k is None) != (v is None):
        raise ValueError("flash_attn_with_kvcache: one of k and v is given, expected both or none")
    if (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("flash_attn_with_kvcache: one of rotary_cos and rotary_sin is given, "
                         "expected both or none")
    return_softmax_lse = _given.flag("flash_attn: return_softmax_lse", return_softmax_lse)
    rotary_interleaved = _given.flag("flash_attn: rotary_interleaved", rotary_interleaved)
    _check("flash_attn_with_kvcache", 4, alibi_slopes, q=q, k_cache=k_cache, v_cache=v_cache)
    _pattern(causal, window_size)  # refuses what is none
    window_size = tuple(window_size)
    caches, new = (k_cache, v_cache), (k, v, rotary_cos, rotary_sin)
    where = (cache_seqlens, cache_batch_idx, cache_leftpad)
    how = (softmax_scale, _given.flag("flash_attn: causal", causal), window_size, softcap, rotary_interleaved)
    side = torch_side(q)
    if side is not None:
        side.refuse_learnt("flash_attn_with_kvcache", q, *caches, *new, alibi_slopes)
    if side is not None and side.observed():
        out, lse = side.flash_kvcache(q, caches, new, where, alibi_slopes, how)
    else:
        out, lse = over_caches(q, caches, new, where, alibi_slopes, how)
    return (out, lse) if return_softmax_lse else out


def over_caches(q, caches, new, where, alibi_slopes, how):
    """flash_attn_with_kvcache item by item: (out, lse)."""
    (k_cache, v_cache), (k, v, rotary_cos, rotary_sin) = caches, new
    cache_seqlens, cache_batch_idx, cache_leftpad = where
    softmax_scale, causal, window_size, softcap, interleaved = how
    batch, queries = q.shape[:2]
    held = _held(cache_seqlens, batch, k_cache.shape[1], k)
    slots = range(batch) if cache_batch_idx is None else _numbers("cache_batch_idx", cache_batch_idx)
    pads = [0] * batch if cache_leftpad is None else _numbers("cache_leftpad", cache_leftpad)
    _check_each("cache_batch_idx", slots, batch, k_cache.shape[0] - 1)
    _check_each("cache_leftpad", pads, batch, k_cache.shape[1])
    options = _how(0.0, softmax_scale, causal, window_size, softcap, None)
    local = causal or window_size != (-1, -1)
    outs = []
    for i, slot in enumerate(slots):
        query, end = q[i:i + 1], held[i]
        if rotary_cos is not None:
            steps = range(held[i], held[i] + queries) if local else [held[i]] * queries
            query = _turned(query, rotary_cos, rotary_sin, list(steps), interleaved)
        if k is not None:
            added = k[i:i + 1]
            end += k.shape[1]
            if rotary_cos is not None:
                added = _turned(added, rotary_cos, rotary_sin, list(range(held[i], end)), interleaved)
            k_cache[slot, held[i]:end] = added[0]
            v_cache[slot, held[i]:end] = v[i]
        own = alibi_slopes[i] if alibi_slopes is not None and alibi_slopes.ndim == 2 else alibi_slopes
        keys = slice(pads[i], end)
        outs.append(_attend(query, k_cache[slot:slot + 1, keys], v_cache[slot:slot + 1, keys],
                            {**options, "alibi_slopes": own}))
    return tuple(_joined(x, 0) for x in zip(*outs))


def _held(cache_seqlens, batch, slots, k):
    """Tokens in the cache of each item before this call."""
    if cache_seqlens is None:
        held = [slots if k is None else 0] * batch
    elif getattr(cache_seqlens, "ndim", 1) and hasattr(cache_seqlens, "__len__"):
        held = _numbers("cache_seqlens", cache_seqlens)
    else:
        held = [_given.whole("flash_attn: cache_seqlens", cache_seqlens)] * batch
    new = 0 if k is None else k.shape[1]
    for count in held:
        if count + new > slots:
            raise ValueError(f"flash_attn_with_kvcache: {count} tokens and {new} new ones, expected at "
                             f"most the {slots} slots of the cache")
    _check_each("cache_seqlens", held, batch, slots)
    return held


def _check_each(name, numbers, batch, most):
    """A number for each item, none below 0."""
    if len(numbers) != batch or not all(0 <= x <= most for x in numbers):
        raise ValueError(f"flash_attn_with_kvcache: {name} is {_given.shown(list(numbers))}, expected {batch} "
                         f"number{'s' * (batch != 1)} from 0 to {most}: one for each item of q, within the cache")


def _turned(x, cos, sin, steps, interleaved):
    """x [1, tokens, heads, dim]; cos and sin [positions, half the rotated channels]."""
    half = cos.shape[1]
    cos, sin = cos[steps][None, :, None], sin[steps][None, :, None]
    out = x.clone() if hasattr(x, "clone") else x.copy()
    first = slice(0, 2 * half, 2) if interleaved else slice(0, half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    a, b = x[..., first], x[..., second]
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out
