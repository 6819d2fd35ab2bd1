"""attend as PyTorch operators: fake kernels for torch.compile, gradients of everything learnable."""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core
from rapt._torch.operator import differentiable, differentiable_once
from rapt._torch.options import HALVES, as_tensor, checked, empty_unrounded, parse, text_of
from rapt._torch.seeds import as_seed, number_of
from rapt.attention.bias import Bias
from rapt.attention.results import WANT_LSE, WANT_ROWS, WANT_STATS

# Tensors of a call besides q, k and v, in the order of the operators' arguments.
EXTRAS = ("slopes", "amplitudes", "rates", "table", "relative_keys", "dense", "relative_values",
          "sinks", "rotations")


@functools.lru_cache(maxsize=64)
def _plan(pattern: str, queries: int, keys: int):
    """Forward and backward, layers and steps share plans. What lsh sees depends on the values."""
    parsed = _core.Pattern(pattern)
    return parsed if parsed.has_lsh else _core.Plan(parsed, queries, keys)


def _lengths(q, k, layout):
    axis = 2 if layout == "bhld" else 1
    return q.shape[axis], k.shape[axis]


def _how(q, k, extras, seed, o, fixed=False):
    """The core's tuple, from the operators' arguments."""
    slopes, amplitudes, rates, table, keys, dense, values, sinks, rotations = extras
    bias = Bias(alibi=slopes,
                kerple=None if amplitudes is None else (o.kerple, amplitudes, rates),
                table=None if table is None else (table, o.max_distance, o.direction), keys=keys,
                dense=None if dense is None else (dense, fixed))
    return (_plan(o.pattern, *_lengths(q, k, o.layout)), o.core_scale,
            o.softcap, bias, values, rotations, sinks, o.dropout, number_of(seed), False, o.context)


@torch.library.custom_op("rapt::attend", mutates_args=(), device_types="cpu")
def attend_op(q: Tensor, k: Tensor, v: Tensor, slopes: Optional[Tensor],
              amplitudes: Optional[Tensor], rates: Optional[Tensor], table: Optional[Tensor],
              relative_keys: Optional[Tensor], dense: Optional[Tensor],
              relative_values: Optional[Tensor], sinks: Optional[Tensor],
              rotations: Optional[Tensor], seed: Optional[Tensor],
              options: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    o = parse(options)
    extras = (slopes, amplitudes, rates, table, relative_keys, dense, relative_values, sinks,
              rotations)
    wanted = WANT_LSE | WANT_ROWS | (WANT_STATS if o.stats else 0)
    found: Any = _core.attend(q, k, v, _how(q, k, extras, seed, o), o.layout, wanted)
    out, lse, *stats, rows = found
    # A 16-bit output comes with its f32 copy after max and sum, for exact gradients.
    row_max, row_sum, *unrounded = rows
    return (out, lse, row_max, row_sum, torch.stack(stats[0]) if stats else lse.new_empty(0),
            unrounded[0] if unrounded else lse.new_empty(0))


@attend_op.register_fake
def _(q, k, v, slopes, amplitudes, rates, table, relative_keys, dense, relative_values, sinks,
      rotations, seed, options):
    o = parse(options)
    checked("attend", q=q, k=k, v=v)
    rows = (q.shape[0], q.shape[1], q.shape[2])
    if o.layout == "blhd":
        rows = (q.shape[0], q.shape[2], q.shape[1])
    lse = q.new_empty(rows, dtype=torch.float32)
    stats = lse.new_empty((6, *rows) if o.stats else (0,))
    return (q.new_empty((*q.shape[:3], v.shape[3])), lse, torch.empty_like(lse),
            lse.new_empty(rows, dtype=torch.float64), stats,
            empty_unrounded(q, o.layout, v.shape[3]))


@torch.library.custom_op("rapt::attend_backward", mutates_args=(), device_types="cpu")
def backward_op(dout: Tensor, dlse: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, out: Tensor,
                row_max: Tensor, row_sum: Tensor, slopes: Optional[Tensor],
                amplitudes: Optional[Tensor], rates: Optional[Tensor], table: Optional[Tensor],
                relative_keys: Optional[Tensor], dense: Optional[Tensor],
                relative_values: Optional[Tensor], sinks: Optional[Tensor],
                rotations: Optional[Tensor], seed: Optional[Tensor], options: str,
                fixed: bool) -> List[Tensor]:
    o = parse(options)
    extras = (slopes, amplitudes, rates, table, relative_keys, dense, relative_values, sinks,
              rotations)
    g = _core.attend_backward(dout, q, k, v, out, (row_max, row_sum),
                              _how(q, k, extras, seed, o, fixed), o.layout, dlse)
    dq, dk, dv, dslopes, dkerple, dtable, dkeys, dvalues, ddense, dsinks = g
    damplitudes, drates = (None, None) if dkerple is None else (x.clone() for x in dkerple)
    found = (dslopes, damplitudes, drates, dtable, dkeys, ddense, dvalues, dsinks, None)
    return [dq, dk, dv, *(_like(x, given, q) for x, given in zip(found, extras))]


def _like(gradient, given, q):
    """The core's f32 gradient in the shape and type of what was given; empty if nothing was."""
    if gradient is None:
        return q.new_empty(0)
    return gradient.to(given.dtype).reshape(given.shape).contiguous()


def _empty_gradient(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@backward_op.register_fake
def _(dout, dlse, q, k, v, out, row_max, row_sum, slopes, amplitudes, rates, table, relative_keys,
      dense, relative_values, sinks, rotations, seed, options, fixed):
    extras = [slopes, amplitudes, rates, table, relative_keys, None if fixed else dense,
              relative_values, sinks, None]
    return [q.new_empty(0) if x is None else _empty_gradient(x) for x in (q, k, v, *extras)]


def _keep(ctx, inputs, output):
    q, k, v, *extras, seed, options = inputs
    out, _, row_max, row_sum, stats, unrounded = output
    ctx.mark_non_differentiable(row_max, row_sum, stats, unrounded)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, unrounded if q.dtype in HALVES else out, row_max, row_sum,
                          *extras, seed)
    ctx.options = options


def _gradients(ctx, dout, dlse, *_):
    q, k, v, out, row_max, row_sum, *extras, seed = ctx.saved_tensors
    if dout is None and dlse is None:
        return (None,) * 14
    dout = torch.zeros_like(out, dtype=q.dtype) if dout is None else dout
    fixed = not ctx.needs_input_grad[3 + EXTRAS.index("dense")]
    found = _attend_backward(dout, dlse, q, k, v, out, row_max, row_sum, *extras, seed, ctx.options,
                             fixed)
    wanted = ctx.needs_input_grad
    return (*(x if wanted[i] else None for i, x in enumerate(found)), None, None)


_attend_backward = differentiable_once(backward_op, "attend")
_attend = differentiable(attend_op, _keep, _gradients, "attend")


def _extras(bias, relative_values, sinks, rotations):
    bias = bias or Bias()
    kerple = bias.kerple[1:] if bias.kerple else (None, None)
    given = (bias.alibi, *kerple, bias.table[0] if bias.table else None, bias.keys,
             bias.dense[0] if bias.dense else None, relative_values, sinks, rotations)
    return [as_tensor(f"attend: {name}", x) for x, name in zip(given, EXTRAS)]


def attend_with_gradients(q: Tensor, k: Tensor, v: Tensor, how: Any, layout: str, wanted: int) -> Any:
    if q.device.type not in ("cpu", "meta"):
        raise TypeError(f"attend: q is on {q.device}, expected the memory of the CPU")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.device != q.device:
            raise TypeError(f"attend: q is on {q.device} and {name} on {x.device}, expected the memory of the CPU")
        if x.is_nested or x.layout != torch.strided:
            raise TypeError(f"attend: {name} is a nested or sparse tensor ({x.layout}), expected a dense one")
    _, _, _, bias, relative_values, rotations, sinks, dropout, seed, _, _ = how
    options = text_of(how, layout, wanted)
    out, lse, row_max, row_sum, stats, unrounded = _attend(
        q, k, v, *_extras(bias, relative_values, sinks, rotations), as_seed(seed, dropout), options)
    if not wanted:
        return out
    parts = [out]
    if wanted & WANT_LSE:
        parts.append(lse)
    if wanted & WANT_STATS:
        parts.append(stats.unbind())
    if wanted & WANT_ROWS:
        parts.append((row_max, row_sum, *([unrounded] if q.dtype in HALVES else [])))
    return tuple(parts)
