"""flash-attn's functions: [batch, tokens, heads, dim], causal from the bottom right corner."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from rapt import _core, _given
from rapt._tensors import torch_functions
from rapt.attention.attend import attend
from rapt.attention.bias import alibi
from rapt.attention.patterns import window
from rapt.typing import Array, Integers

__all__ = ["flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"]

_ALL = 2**62


def _check(where: str, axes: int, slopes: Any, **arrays: Any) -> None:
    """q, k and v, or caches, have that many axes; slopes are an array or None."""
    for name, x in arrays.items():
        if not hasattr(x, "ndim") or not hasattr(x, "shape"):
            raise TypeError(f"{where}: {name} is a {type(x).__name__}, expected an array")
        if x.ndim != axes:
            raise ValueError(f"{where}: {name} has {x.ndim} axes, expected {axes}")
    if slopes is not None and getattr(slopes, "ndim", 0) not in (1, 2):
        raise TypeError(f"{where}: alibi_slopes is {_given.said(slopes)}, expected an array [heads] or [batch, heads]")


def _pattern(causal: bool, window_size: Any) -> Optional[_core.Pattern]:
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise TypeError(f"flash_attn: window_size is {_given.said(window_size)}, expected (left, right)")
    left, right = (side if side >= 0 else _ALL for side in window_size)
    if _given.flag("flash_attn: causal", causal):
        right = min(right, 0)
    if left == _ALL and right == _ALL:
        return None
    return window(left, right)


def _joined(arrays: Sequence[Any], axis: int) -> Any:
    return sys.modules["torch" if torch_functions(arrays[0]) else "numpy"].concatenate(arrays, axis)


def _attend(q: Any, k: Any, v: Any, how: Dict[str, Any]) -> Any:
    """(out, lse). If slopes differ between batch items, each item is a call."""
    slopes = how.pop("alibi_slopes")
    how = {**how, "layout": "blhd", "return_lse": True}
    if slopes is None or slopes.ndim == 1:
        return attend(q, k, v, bias=None if slopes is None else alibi(slopes), **how)
    parts = [attend(q[i:i + 1], k[i:i + 1], v[i:i + 1], bias=alibi(slopes[i]), **how)
             for i in range(q.shape[0])]
    return tuple(_joined(x, 0) for x in zip(*parts))


def _how(dropout_p: float, softmax_scale: Any, causal: bool, window_size: Any, softcap: Any,
         alibi_slopes: Any) -> Dict[str, Any]:
    """A softcap of 0 is flash-attn's word for none."""
    none = isinstance(softcap, (int, float)) and softcap == 0
    return {"pattern": _pattern(causal, window_size), "dropout": dropout_p, "scale": softmax_scale,
            "softcap": None if none else softcap, "alibi_slopes": alibi_slopes}


def flash_attn_func(q: Array, k: Array, v: Array, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Array] = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Any:
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


def _numbers(name: str, given: Any) -> List[int]:
    """Integers of a list or an array."""
    made = given.tolist() if hasattr(given, "tolist") else _given.list_of(f"flash_attn: {name}", given, "integers")
    return [_given.whole(f"flash_attn: {name}", x) for x in made]


def _lengths(name: str, cumulative: Any, operand: str, rows: int) -> List[int]:
    ends = _numbers(name, cumulative)
    lengths = [b - a for a, b in zip(ends, ends[1:])]
    if not ends or ends[0] != 0 or ends[-1] != rows or min(lengths, default=0) < 0:
        raise ValueError(f"flash_attn_varlen_func: {name} is {_given.shown(ends)}, expected numbers that "
                         f"begin with 0, never decrease and end with the {rows} rows of {operand}")
    return lengths


def flash_attn_varlen_func(q: Array, k: Array, v: Array, cu_seqlens_q: Integers, cu_seqlens_k: Integers,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: Optional[Array] = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: None = None) -> Any:
    """Packed sequences: q [all queries, heads, dim], k and v [all keys, kv_heads, dim]; the cumulative
    lengths have one more entry than there are sequences."""
    if block_table is not None:
        raise ValueError("flash_attn_varlen_func: a block_table is given, expected none; rapt.KvCache "
                         "is paged")
    return_attn_probs = _given.flag("flash_attn: return_attn_probs", return_attn_probs)
    _check("flash_attn_varlen_func", 3, alibi_slopes, q=q, k=k, v=v)
    how = _how(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    functions = torch_functions(q)
    if functions is not None and functions.traced():  # lengths are values, which graphs do not have
        out, lse = functions.flash_varlen(q, k, v, (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k), how)
    else:
        calls = pieces((q.shape[0], k.shape[0]), (cu_seqlens_q, cu_seqlens_k), (max_seqlen_q, max_seqlen_k),
                       how["pattern"], alibi_slopes)
        out, lse = _varlen(q, k, v, calls, how)
    return (out, lse, None) if return_attn_probs else out


def pieces(rows: Any, cumulative: Any, most: Any, pattern: Optional[_core.Pattern],
           slopes: Any) -> List[Tuple[slice, slice, Optional[_core.Pattern], Any]]:
    """The calls that packed sequences take: (queries, keys, pattern, slopes). One for all, unless causal
    sequences have other numbers of keys than of queries or their slopes differ. rows, cumulative and most
    are pairs, of queries and of keys."""
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
    made: List[Tuple[slice, slice, Optional[_core.Pattern], Any]] = []
    at = key_at = 0
    for i, (count, key_count) in enumerate(zip(lengths, key_lengths)):
        made.append((slice(at, at + count), slice(key_at, key_at + key_count), pattern,
                     slopes[i] if each else slopes))
        at, key_at = at + count, key_at + key_count
    return made


def _varlen(q: Any, k: Any, v: Any, calls: Iterable[Any], how: Dict[str, Any]) -> Tuple[Any, Any]:
    outs, lses = [], []
    for queries, keys, pattern, slopes in calls:
        out, lse = _attend(q[None, queries], k[None, keys], v[None, keys],
                           {**how, "pattern": pattern, "alibi_slopes": slopes})
        outs.append(out[0])
        lses.append(lse[0])
    return (outs[0], lses[0]) if len(outs) == 1 else (_joined(outs, 0), _joined(lses, 1))


def flash_attn_with_kvcache(q: Array, k_cache: Array, v_cache: Array, k: Optional[Array] = None,
                            v: Optional[Array] = None, rotary_cos: Optional[Array] = None,
                            rotary_sin: Optional[Array] = None, cache_seqlens: Any = None,
                            cache_batch_idx: Optional[Integers] = None, cache_leftpad: Optional[Integers] = None,
                            block_table: None = None, softmax_scale: Optional[float] = None, causal: bool = False,
                            window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Optional[Array] = None,
                            num_splits: int = 0, return_softmax_lse: bool = False) -> Any:
    """Attention over caches [batch, slots, kv_heads, dim], of which item i holds cache_seqlens[i] tokens. New
    k and v are first written after them, in place, rotated if cosines and sines are given. There are no
    gradients. num_splits is ignored."""
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
    _pattern(causal, window_size)  # checks them
    window_size = (window_size[0], window_size[1])  # a list is fine too
    caches, new = (k_cache, v_cache), (k, v, rotary_cos, rotary_sin)
    where = (cache_seqlens, cache_batch_idx, cache_leftpad)
    how = (softmax_scale, _given.flag("flash_attn: causal", causal), window_size, softcap, rotary_interleaved)
    functions = torch_functions(q)
    if functions is not None:
        functions.refuse_requires_grad("flash_attn_with_kvcache", q, *caches, *new, alibi_slopes)
    if functions is not None and functions.traced():
        out, lse = functions.flash_kvcache(q, caches, new, where, alibi_slopes, how)
    else:
        out, lse = over_caches(q, caches, new, where, alibi_slopes, how)
    return (out, lse) if return_softmax_lse else out


def over_caches(q: Any, caches: Any, new: Any, where: Any, alibi_slopes: Any, how: Any) -> Tuple[Any, ...]:
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
            query = _rotated(query, rotary_cos, rotary_sin, list(steps), interleaved)
        if k is not None:
            added = k[i:i + 1]
            end += k.shape[1]
            if rotary_cos is not None:
                added = _rotated(added, rotary_cos, rotary_sin, list(range(held[i], end)), interleaved)
            k_cache[slot, held[i]:end] = added[0]
            v_cache[slot, held[i]:end] = v[i]
        own = alibi_slopes[i] if alibi_slopes is not None and alibi_slopes.ndim == 2 else alibi_slopes
        keys = slice(pads[i], end)
        outs.append(_attend(query, k_cache[slot:slot + 1, keys], v_cache[slot:slot + 1, keys],
                            {**options, "alibi_slopes": own}))
    return tuple(_joined(x, 0) for x in zip(*outs))


def _held(cache_seqlens: Any, batch: int, slots: int, k: Any) -> List[int]:
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


def _check_each(name: str, numbers: Sequence[int], batch: int, most: int) -> None:
    """A number for each item, from 0 to `most`."""
    if len(numbers) != batch or not all(0 <= x <= most for x in numbers):
        raise ValueError(f"flash_attn_with_kvcache: {name} is {_given.shown(list(numbers))}, expected {batch} "
                         f"number{'s' * (batch != 1)} from 0 to {most}: one for each item of q, within the cache")


def _rotated(x: Any, cos: Any, sin: Any, steps: List[int], interleaved: bool) -> Any:
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
