"""flash-attn's packed sequences and caches as PyTorch operators: their lengths are values of tensors, which
graphs do not have."""

from __future__ import annotations

import json
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core
from rapt._torch.modes import autocast, autocast_type, transformed
from rapt._torch.operator import differentiable, differentiable_once
from rapt._torch.options import HALVES, as_tensor, parse, real, scale_of, text_of
from rapt._torch.seeds import as_seed, number_of
from rapt.attention.bias import Bias
from rapt.attention.patterns import constant, decided
from rapt.attention.results import WANT_LSE, WANT_ROWS


def _calls(rows, cumulative, slopes, seed, most, options):
    """Slices of queries and keys, and the core's options, of each call."""
    from rapt.compat.flash_attn import pieces

    o = parse(options)
    pattern = None if o.pattern == "full" else _core.Pattern(o.pattern)
    for i, (queries, keys, seen, own) in enumerate(pieces(rows, cumulative, most, pattern, slopes)):
        yield queries, keys, (seen, o.core_scale, o.softcap, None if own is None else Bias(alibi=own), None,
                              None, None, o.dropout, (number_of(seed) + i) % 2**64, False, None)


@torch.library.custom_op("rapt::flash_varlen", mutates_args=(), device_types="cpu")
def varlen_op(q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, slopes: Optional[Tensor],
              seed: Optional[Tensor], most_q: int, most_k: int,
              options: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    parts = []
    calls = _calls((q.shape[0], k.shape[0]), (cu_q, cu_k), slopes, seed, (most_q, most_k), options)
    for queries, keys, how in calls:
        found: Any = _core.attend(q[None, queries], k[None, keys], v[None, keys], how, "blhd",
                                  WANT_LSE | WANT_ROWS)
        out, lse, rows = found
        unrounded = rows[2][0] if len(rows) == 3 else lse.new_empty(0)
        parts.append((out[0], lse[0], rows[0][0], rows[1][0], unrounded))
    out, *rows, unrounded = zip(*parts)
    return torch.cat(out), *(torch.cat(x, 1) for x in rows), torch.cat(unrounded)


@varlen_op.register_fake
def _(q, k, v, cu_q, cu_k, slopes, seed, most_q, most_k, options):
    rows = q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    out = q.new_empty((q.shape[0], q.shape[1], v.shape[2]))
    unrounded = torch.empty_like(out, dtype=torch.float32) if q.dtype in HALVES else rows.new_empty(0)
    return out, rows, torch.empty_like(rows), rows.new_empty(rows.shape, dtype=torch.float64), unrounded


@torch.library.custom_op("rapt::flash_varlen_backward", mutates_args=(), device_types="cpu")
def varlen_backward_op(dout: Tensor, dlse: Tensor, kept: List[Tensor], q: Tensor, k: Tensor, v: Tensor,
                       cu_q: Tensor, cu_k: Tensor, slopes: Optional[Tensor], seed: Optional[Tensor],
                       most_q: int, most_k: int, options: str) -> List[Tensor]:
    out, row_max, row_sum = kept
    found = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    dslopes = q.new_empty(0) if slopes is None else torch.zeros_like(slopes)
    calls = _calls((q.shape[0], k.shape[0]), (cu_q, cu_k), slopes, seed, (most_q, most_k), options)
    for i, (queries, keys, how) in enumerate(calls):
        rows = tuple(x[None, :, queries] for x in (row_max, row_sum))
        g = _core.attend_backward(dout[None, queries], q[None, queries], k[None, keys], v[None, keys],
                                  out[None, queries], rows, how, "blhd", dlse[None, :, queries])
        for to, at, part in zip(found, (queries, keys, keys), g):
            to[at] += part[0]
        if slopes is not None:
            (dslopes[i] if slopes.ndim == 2 else dslopes).add_(g[3].to(slopes.dtype))
    return [*found, dslopes]


@varlen_backward_op.register_fake
def _(dout, dlse, kept, q, k, v, cu_q, cu_k, slopes, seed, most_q, most_k, options):
    found = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v)]
    return [*found, q.new_empty(0) if slopes is None else torch.empty_like(slopes)]


def _keep(ctx, inputs, output):
    *tensors, ctx.most_q, ctx.most_k, ctx.options = inputs
    out, _, row_max, row_sum, unrounded = output
    ctx.mark_non_differentiable(row_max, row_sum, unrounded)
    ctx.save_for_backward(unrounded if out.dtype in HALVES else out, row_max, row_sum, *tensors)


def _gradients(ctx, dout, dlse, *_):
    out, row_max, row_sum, *tensors = ctx.saved_tensors
    *found, dslopes = _varlen_backward(dout, dlse, [out, row_max, row_sum], *tensors, ctx.most_q, ctx.most_k,
                                       ctx.options)
    return (*found, None, None, dslopes if ctx.needs_input_grad[5] else None, *[None] * 4)


_varlen_backward = differentiable_once(varlen_backward_op, "flash_attn_varlen_func")
_varlen = differentiable(varlen_op, _keep, _gradients, "flash_attn_varlen_func")


def flash_varlen(q: Tensor, k: Tensor, v: Tensor, cumulative: Any, most: Any, how: Any) -> Any:
    plain = (how["pattern"], how["scale"], how["softcap"], None, None, None, None, how["dropout"], None,
             False, None)
    options = text_of(plain, "blhd", 0)
    return _varlen(*autocast(q, k, v), *(as_tensor("flash_attn_varlen_func: cu_seqlens", x) for x in cumulative),
                   as_tensor("flash_attn_varlen_func: alibi_slopes", how["alibi_slopes"]),
                   as_seed(None, how["dropout"]), *(int(x) for x in most), options)[:2]


@torch.library.custom_op("rapt::flash_kvcache", mutates_args=("k_cache", "v_cache"), device_types="cpu")
def kvcache_op(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor], v: Optional[Tensor],
               cos: Optional[Tensor], sin: Optional[Tensor], seqlens: Optional[Tensor],
               batch_idx: Optional[Tensor], leftpad: Optional[Tensor], slopes: Optional[Tensor],
               options: str) -> Tuple[Tensor, Tensor]:
    from rapt.compat.flash_attn import over_caches

    rule, number, causal, window_size, softcap, interleaved, _ = json.loads(options)
    how = (_core.Scale.from_rule(rule, number), causal, tuple(window_size), softcap, interleaved)
    cast = _cast(options)
    with torch.autocast("cpu", dtype=cast, enabled=cast is not None):
        return over_caches(q, (k_cache, v_cache), (k, v, cos, sin), (seqlens, batch_idx, leftpad), slopes, how)


def _cast(options):
    """The type that autocast cast to where the call was made, or None."""
    name = json.loads(options)[-1]
    return getattr(torch, name) if name else None


@kvcache_op.register_fake
def _(q, k_cache, v_cache, k, v, cos, sin, seqlens, batch_idx, leftpad, slopes, options):
    batch, queries, heads, _ = q.shape
    cast = None if q.dtype == torch.float64 else _cast(options)
    return (q.new_empty((batch, queries, heads, v_cache.shape[3]), dtype=cast),
            q.new_empty((batch, heads, queries), dtype=torch.float32))


@constant
def _words(rule, number, causal, left, right, softcap, interleaved, cast):
    return json.dumps([rule, number, causal, [left, right], softcap, interleaved, cast])


def flash_kvcache(q: Tensor, caches: Any, new: Any, where: Any, slopes: Any, how: Any) -> Any:
    if transformed():
        raise RuntimeError("flash_attn_with_kvcache: a transform of torch.func is active, and a cache that is "
                           "written in place has no derivatives and no vmap; expected a call outside of it")
    scale, causal, (left, right), softcap, interleaved = how
    rule, number = scale_of(scale)
    cast = autocast_type()
    options = _words(rule, number, causal, decided(left), decided(right), real("softcap", softcap), interleaved,
                     "" if cast is None else str(cast).removeprefix("torch."))
    return kvcache_op(q, *caches, *new, *(None if x is None else torch.as_tensor(x) for x in where), slopes, options)
