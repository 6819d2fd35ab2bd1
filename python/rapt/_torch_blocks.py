"""BigBird's and Reformer's local attention as PyTorch operators."""

from __future__ import annotations

from typing import List, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core
from rapt._torch_options import HALVES, context_of, room, scale_of, unrounded_room
from rapt._torch_rules import draw_seed


def _operator(name, forward, backward, how_of):
    """An operator and its gradients. how_of(real, random, seed, fields) makes the core's tuple of
    its arguments; fields are those of the options, after layout, threads and instruction set."""

    def call(core, *arguments, real, random, seed, options):
        layout, threads, isa, *fields = options.split(";")
        context = _core.Context(int(threads), isa) if int(threads) else None
        return core(*arguments, how_of(real, random, seed, fields), layout, context)

    @torch.library.custom_op(f"rapt::{name}", mutates_args=(), device_types="cpu")
    def operator(q: Tensor, k: Tensor, v: Tensor, real: Optional[Tensor], random: Optional[Tensor],
                 seed: int, options: str) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        out, row_max, row_sum, *unrounded = call(forward, (q, k, v), real=real, random=random,
                                                 seed=seed, options=options)
        return out, row_max, row_sum, unrounded[0] if unrounded else row_max.new_empty(0)

    @operator.register_fake
    def _(q, k, v, real, random, seed, options):
        rows = (q.shape[0], q.shape[1], q.shape[2])
        if options.startswith("blhd"):
            rows = (q.shape[0], q.shape[2], q.shape[1])
        return (room(q, options[:4], v.shape[3]), q.new_empty(rows, dtype=torch.float32),
                q.new_empty(rows, dtype=torch.float64),
                unrounded_room(q, options[:4], v.shape[3]))

    @torch.library.custom_op(f"rapt::{name}_backward", mutates_args=(), device_types="cpu")
    def gradients(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, row_max: Tensor,
                  row_sum: Tensor, real: Optional[Tensor], random: Optional[Tensor], seed: int,
                  options: str) -> List[Tensor]:
        return list(call(backward, dout, (q, k, v), (out, row_max, row_sum), real=real,
                         random=random, seed=seed, options=options))

    @gradients.register_fake
    def _(dout, q, k, v, out, row_max, row_sum, real, random, seed, options):
        return [room(x, options[:4]) for x in (q, k, v)]

    def keep(ctx, inputs, output):
        *ctx_tensors, ctx.seed, ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        out, row_max, row_sum, unrounded = output
        ctx.save_for_backward(*ctx_tensors, unrounded if ctx_tensors[0].dtype in HALVES else out,
                              row_max, row_sum)

    def differentiate(ctx, dout, *_):
        q, k, v, real, random, *output = ctx.saved_tensors
        found = gradients(dout, q, k, v, *output, real, random, ctx.seed, ctx.options)
        wanted = ctx.needs_input_grad
        return (*(x if wanted[i] else None for i, x in enumerate(found)), None, None, None, None)

    operator.register_autograd(differentiate, setup_context=keep)
    return operator


def _bigbird_how(real, random, seed, fields):
    block, first_block_counts, rule, number = fields
    return (int(block), random, int(first_block_counts), real,
            _core.Scale.from_rule(int(rule), float(number)))


def _local_how(real, random, seed, fields):
    chunk, before, after, causal, blind, dropout = fields
    return (int(chunk), int(before), int(after), bool(int(causal)), real, blind, float(dropout), seed)


_bigbird = _operator("attend_bigbird", _core.attend_bigbird, _core.attend_bigbird_backward,
                     _bigbird_how)
_local = _operator("attend_local", _core.attend_local, _core.attend_local_backward, _local_how)


def _rectangle(random):
    """Lists of lists, perhaps for each head, as a tensor with -1 where a list is short."""
    if random is None or isinstance(random, Tensor):
        return random
    if hasattr(random, "shape"):
        return torch.as_tensor(random)
    each = random if any(isinstance(x, (list, tuple)) for row in random for x in row) else [random]
    rows = max([0] + [len(table) for table in each])
    most = max([0] + [len(row) for table in each for row in table])
    full = [[list(row) + [-1] * (most - len(row)) for row in table]
            + [[-1] * most] * (rows - len(table)) for table in each]
    return torch.tensor(full, dtype=torch.long).reshape(len(each), rows, most)


def _mask(real):
    return None if real is None else torch.as_tensor(real)


def attend_bigbird(operands, block, random, first_block_counts, real, scale, layout, context):
    rule, number = scale_of(scale)
    threads, isa = context_of(context)
    options = f"{layout};{threads};{isa};{block};{first_block_counts};{rule};{number}"
    return _bigbird(*operands, _mask(real), _rectangle(random), 0, options)[0]


def local(operands, how, real, seed, layout, context):
    chunk, before, after, causal, blind, dropout = how
    if dropout and seed is None:
        seed = draw_seed()
    threads, isa = context_of(context)
    options = (f"{layout};{threads};{isa};{chunk};{before};{after};{1 if causal else 0};{blind};"
               f"{float(dropout)}")
    return _local(*operands, _mask(real), None, seed or 0, options)[0]
