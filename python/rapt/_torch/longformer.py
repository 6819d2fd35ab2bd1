"""Longformer's attention as PyTorch operators."""

from __future__ import annotations

import functools
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core
from rapt._torch.modes import autocast, plain_call
from rapt._torch.operator import differentiable, differentiable_once
from rapt._torch.options import (HALVES, all_tensors, as_tensor, checked, context_of, empty_unrounded, real,
                                 scale_of)
from rapt._torch.seeds import as_seed, number_of

_NAMES = ("q", "k", "v", "q_global", "k_global", "v_global")


class _Options(NamedTuple):
    layout: str
    window: int
    causal: int
    scale_rule: int
    scale: float
    dropout: float
    threads: int
    isa: str
    dilation: str  # numbers separated by commas


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> _Options:
    kinds = (str, int, int, int, float, float, int, str, str)
    return _Options(*(kind(field) for kind, field in zip(kinds, text.split(";"))))


def _how(classes, seed, o):
    dilation = [int(x) for x in o.dilation.split(",")] if o.dilation else None
    context = _core.Context(o.threads, o.isa) if o.threads else None
    return (o.window, dilation, bool(o.causal), _core.Scale.from_rule(o.scale_rule, o.scale),
            o.dropout, number_of(seed), classes, context)


@torch.library.custom_op("rapt::attend_longformer", mutates_args=(), device_types="cpu")
def longformer_op(q: Tensor, k: Tensor, v: Tensor, q_global: Optional[Tensor],
                  k_global: Optional[Tensor], v_global: Optional[Tensor],
                  classes: Optional[Tensor], seed: Optional[Tensor],
                  options: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    o = _parse(options)
    operands = (q, k, v, q_global, k_global, v_global)
    out, _, rows, global_rows = _core.attend_longformer(operands, _how(classes, seed, o), o.layout)
    row_max, row_sum, *unrounded = rows
    return (out, row_max, row_sum, *global_rows, unrounded[0] if unrounded else row_max.new_empty(0))


@longformer_op.register_fake
def _(q, k, v, q_global, k_global, v_global, classes, seed, options):
    checked("attend_longformer", q=q, k=k, v=v)
    rows = q.shape[0] * q.shape[1] * q.shape[2]
    # The number of global tokens depends on the values.
    unknown = classes is not None and not classes.is_meta
    globals_ = torch.library.get_ctx().new_dynamic_size() if unknown else 0
    f32 = functools.partial(q.new_empty, dtype=torch.float32)
    f64 = functools.partial(q.new_empty, dtype=torch.float64)
    return (_empty(q), f32(rows), f64(rows), f32(globals_), f64(globals_),
            empty_unrounded(q, _parse(options).layout, q.shape[3]))


@torch.library.custom_op("rapt::attend_longformer_backward", mutates_args=(), device_types="cpu")
def backward_op(dout: Tensor, kept: List[Tensor], q: Tensor, k: Tensor, v: Tensor,
                q_global: Optional[Tensor], k_global: Optional[Tensor], v_global: Optional[Tensor],
                classes: Optional[Tensor], seed: Optional[Tensor], options: str) -> List[Tensor]:
    o = _parse(options)
    operands = (q, k, v, q_global, k_global, v_global)
    found = _core.attend_longformer_backward(dout, operands, tuple(kept), _how(classes, seed, o), o.layout)
    return [_present(x, given, q) for x, given in zip(found, operands)]


def _empty(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _present(gradient, given, q):
    """Global projections that no token used have a gradient of zeros."""
    if given is None:
        return q.new_empty(0)
    return _empty(given).zero_() if gradient is None else gradient


@backward_op.register_fake
def _(dout, kept, q, k, v, q_global, k_global, v_global, classes, seed, options):
    return [q.new_empty(0) if x is None else _empty(x) for x in (q, k, v, q_global, k_global, v_global)]


def _keep(ctx, inputs, output):
    *operands, classes, seed, options = inputs
    out, *rows, unrounded = output
    ctx.mark_non_differentiable(*rows, unrounded)
    ctx.save_for_backward(*operands, classes, seed, unrounded if operands[0].dtype in HALVES else out,
                          *rows)
    ctx.options = options


def _gradients(ctx, dout, *_):
    *operands, classes, seed, out, local_max, local_sum, global_max, global_sum = ctx.saved_tensors
    found = _backward(dout, [out, local_max, local_sum, global_max, global_sum], *operands, classes,
                      seed, ctx.options)
    return (*(x if ctx.needs_input_grad[i] else None for i, x in enumerate(found)), None, None, None)


_backward = differentiable_once(backward_op, "attend_longformer")
_longformer = differentiable(longformer_op, _keep, _gradients, "attend_longformer")


def _numbers(dilation) -> str:
    if dilation is None:
        return ""
    return ",".join(str(x) for x in (dilation if hasattr(dilation, "__iter__") else [dilation]))


def attend_longformer(operands: Any, how: Any, layout: str) -> Any:
    window, dilation, causal, scale, dropout, seed, classes, context = how
    all_tensors("attend_longformer", **dict(zip(_NAMES, operands)))
    if plain_call(*operands, classes):
        how = (*how[:5], number_of(as_seed(seed, dropout)), classes, context)
        return _core.attend_longformer(operands, how, layout)[0]
    rule, number = scale_of(scale)
    threads, isa = context_of(context)
    options = (f"{layout};{window};{1 if causal else 0};{rule};{number};{real('dropout', dropout)};"
               f"{threads};{isa};{_numbers(dilation)}")
    classes = as_tensor("attend_longformer: classes", classes)
    return _longformer(*autocast(*operands), classes, as_seed(seed, dropout), options)[0]
