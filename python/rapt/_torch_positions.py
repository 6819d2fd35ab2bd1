"""Positions with gradients for PyTorch tensors."""

from __future__ import annotations

import torch

from rapt import _core


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rope, positions, layout):
        ctx.rope, ctx.positions, ctx.layout = rope, positions, layout
        return rope._apply(x.detach(), positions, layout)

    @staticmethod
    def backward(ctx, dout):
        return ctx.rope._apply_backward(dout, ctx.positions, ctx.layout), None, None, None


class _Learned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, *where):
        ctx.rows, ctx.where, ctx.dtype = table.shape[0], where, table.dtype
        return _core.learned(table.detach(), *where).to(table.dtype)

    @staticmethod
    def backward(ctx, dout):
        batch, tokens, positions, offset = ctx.where
        dtable = _core.learned_backward(dout, ctx.rows, positions, offset)
        return dtable.to(ctx.dtype), None, None, None, None


class _Axial(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, columns, *where):
        ctx.save_for_backward(rows, columns)
        ctx.where = where
        return _core.axial(rows.detach(), columns.detach(), *where).to(rows.dtype)

    @staticmethod
    def backward(ctx, dout):
        rows, columns = ctx.saved_tensors
        found = _core.axial_backward(dout, rows, columns, *ctx.where[2:])
        return (found[0].to(rows.dtype), found[1].to(columns.dtype), None, None, None, None)


# The compiler cannot look into the core; it leaves these calls as they are.

@torch.compiler.disable
def rope(self, x, positions, layout):
    return _Rope.apply(x, self, positions, layout)


@torch.compiler.disable
def learned(table, *where):
    return _Learned.apply(table, *where)


@torch.compiler.disable
def axial(rows, columns, *where):
    return _Axial.apply(rows, columns, *where)
