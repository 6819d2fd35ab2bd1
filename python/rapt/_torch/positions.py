"""Positions as PyTorch operators. All are linear, so the gradient of each is an operator as well."""

from __future__ import annotations

import functools
from typing import Any, List, Optional

import torch
from torch import Tensor

from rapt import _core as _typed_core
from rapt._torch.modes import plain_call
from rapt._torch.operator import differentiable, differentiable_once
from rapt._torch.options import as_tensor
from rapt.attention.patterns import constant

_core: Any = _typed_core  # whose results are arrays of no known type


@functools.lru_cache(maxsize=64)
def _rope_of(text: str):
    from rapt.positions import Rope

    return Rope._from_text(text)


def _where(positions: Optional[Tensor], first: int):
    return first if positions is None else positions


@torch.library.custom_op("rapt::rope", mutates_args=(), device_types="cpu")
def rope_op(x: Tensor, positions: Optional[Tensor], first: int, back: bool, options: str) -> Tensor:
    layout, text = options.split(";", 1)
    rope = _rope_of(text)
    return (rope._apply_backward if back else rope._apply)(x, _where(positions, first), layout)


@rope_op.register_fake
def _(x, positions, first, back, options):
    if options.startswith("bhld"):
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    b, t, h, d = x.shape
    return x.new_empty((b, h, t, d)).transpose(1, 2)


def _keep_rope(ctx, inputs, output):
    _, positions, *ctx.rest = inputs
    ctx.save_for_backward(positions)


def _rope_gradients(ctx, dout):
    (positions,), (first, back, options) = ctx.saved_tensors, ctx.rest
    return _rope(dout, positions, first, not back, options), None, None, None, None


_rope = differentiable(rope_op, _keep_rope, _rope_gradients, "Rope.apply")


@torch.library.custom_op("rapt::learned", mutates_args=(), device_types="cpu")
def learned_op(table: Tensor, positions: Optional[Tensor], first: int, batch: int, tokens: int,
               offset: int) -> Tensor:
    return _core.learned(table, batch, tokens, _where(positions, first), offset).to(table.dtype)


@learned_op.register_fake
def _(table, positions, first, batch, tokens, offset):
    return table.new_empty((batch, tokens, table.shape[1]))


@torch.library.custom_op("rapt::learned_backward", mutates_args=(), device_types="cpu")
def learned_backward_op(dout: Tensor, positions: Optional[Tensor], first: int, rows: int,
                        offset: int) -> Tensor:
    return _core.learned_backward(dout, rows, _where(positions, first), offset).to(dout.dtype)


@learned_backward_op.register_fake
def _(dout, positions, first, rows, offset):
    return dout.new_empty((rows, dout.shape[2]))


def _keep_learned(ctx, inputs, output):
    table, positions, ctx.first, _, _, ctx.offset = inputs
    ctx.rows = table.shape[0]
    ctx.save_for_backward(positions)


def _learned_gradients(ctx, dout):
    (positions,) = ctx.saved_tensors
    return (_learned_backward(dout, positions, ctx.first, ctx.rows, ctx.offset), *[None] * 5)


_learned_backward = differentiable_once(learned_backward_op, "learned")
_learned = differentiable(learned_op, _keep_learned, _learned_gradients, "learned")


@torch.library.custom_op("rapt::axial", mutates_args=(), device_types="cpu")
def axial_op(rows: Tensor, columns: Tensor, positions: Optional[Tensor], first: int, batch: int,
             tokens: int, column_major: bool) -> Tensor:
    found = _core.axial(rows, columns, batch, tokens, _where(positions, first), column_major)
    return found.to(rows.dtype)


@axial_op.register_fake
def _(rows, columns, positions, first, batch, tokens, column_major):
    return rows.new_empty((batch, tokens, rows.shape[1] + columns.shape[1]))


@torch.library.custom_op("rapt::axial_backward", mutates_args=(), device_types="cpu")
def axial_backward_op(dout: Tensor, rows: Tensor, columns: Tensor, positions: Optional[Tensor],
                      first: int, column_major: bool) -> List[Tensor]:
    found = _core.axial_backward(dout, rows, columns, _where(positions, first), column_major)
    return [found[0].to(rows.dtype), found[1].to(columns.dtype)]


@axial_backward_op.register_fake
def _(dout, rows, columns, positions, first, column_major):
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (rows, columns)]


def _keep_axial(ctx, inputs, output):
    rows, columns, positions, ctx.first, _, _, ctx.column_major = inputs
    ctx.save_for_backward(rows, columns, positions)


def _axial_gradients(ctx, dout):
    found = _axial_backward(dout, *ctx.saved_tensors, ctx.first, ctx.column_major)
    return (*found, *[None] * 5)


_axial_backward = differentiable_once(axial_backward_op, "axial")
_axial = differentiable(axial_op, _keep_axial, _axial_gradients, "axial")


def _split(positions):
    """(tensor or None, first): a number is that of the first token."""
    if positions is None:
        return None, 0
    if isinstance(positions, int):
        return None, positions
    return as_tensor("positions", positions), 0


@constant
def _text_of(rope):
    return rope._text()


def rope(self: Any, x: Tensor, positions: Any, layout: str, back: bool = False) -> Any:
    if plain_call(x, positions):
        return (self._apply_backward if back else self._apply)(x, positions, layout)
    return _rope(x, *_split(positions), back, f"{layout};{_text_of(self)}")


def learned(table: Tensor, batch: int, tokens: int, positions: Any, offset: int) -> Any:
    if plain_call(table, positions):
        return _core.learned(table, batch, tokens, positions, offset).to(table.dtype)
    return _learned(table, *_split(positions), batch, tokens, offset)


def axial(rows: Tensor, columns: Tensor, batch: int, tokens: int, positions: Any, column_major: bool) -> Any:
    if not (isinstance(rows, Tensor) and isinstance(columns, Tensor)):
        raise TypeError(f"axial: rows is a {type(rows).__name__} and columns a {type(columns).__name__}, expected "
                        "two arrays of one library")
    if plain_call(rows, columns, positions):
        return _core.axial(rows, columns, batch, tokens, positions, column_major).to(rows.dtype)
    return _axial(rows, columns, *_split(positions), batch, tokens, column_major)
