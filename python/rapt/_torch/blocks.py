"""BigBird's and Reformer's local attention as PyTorch operators."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core
from rapt._torch.modes import autocast, plain_call
from rapt._torch.operator import differentiable, differentiable_once
from rapt._torch.options import (HALVES, all_tensors, as_tensor, checked, context_of, empty_out,
                                 empty_unrounded, real, scale_of)
from rapt._torch.seeds import as_seed, number_of


def _operator(name, forward, backward, how_of):
    """An operator with its gradients. how_of(attention_mask, random, seed, fields) makes the core's tuple of
    its arguments; fields are those of the options, after layout, threads and instruction set."""

    def call(core, *arguments, attention_mask, random, seed, options):
        layout, threads, isa, *fields = options.split(";")
        context = _core.Context(int(threads), isa) if int(threads) else None
        return core(*arguments, how_of(attention_mask, random, number_of(seed), fields), layout, context)

    @torch.library.custom_op(f"rapt::{name}", mutates_args=(), device_types="cpu")
    def operator(q: Tensor, k: Tensor, v: Tensor, attention_mask: Optional[Tensor], random: Optional[Tensor],
                 seed: Optional[Tensor], options: str) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        out, _, rows = call(forward, (q, k, v), attention_mask=attention_mask, random=random, seed=seed, options=options)
        row_max, row_sum, *unrounded = rows
        return out, row_max, row_sum, unrounded[0] if unrounded else row_max.new_empty(0)

    @operator.register_fake
    def _(q, k, v, attention_mask, random, seed, options):
        checked(name, q=q, k=k, v=v)
        rows = (q.shape[0], q.shape[1], q.shape[2])
        if options.startswith("blhd"):
            rows = (q.shape[0], q.shape[2], q.shape[1])
        return (empty_out(q, options[:4], v.shape[3]), q.new_empty(rows, dtype=torch.float32),
                q.new_empty(rows, dtype=torch.float64),
                empty_unrounded(q, options[:4], v.shape[3]))

    @torch.library.custom_op(f"rapt::{name}_backward", mutates_args=(), device_types="cpu")
    def gradients(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, row_max: Tensor,
                  row_sum: Tensor, attention_mask: Optional[Tensor], random: Optional[Tensor],
                  seed: Optional[Tensor], options: str) -> List[Tensor]:
        return list(call(backward, dout, (q, k, v), (out, row_max, row_sum), attention_mask=attention_mask,
                         random=random, seed=seed, options=options))

    @gradients.register_fake
    def _(dout, q, k, v, out, row_max, row_sum, attention_mask, random, seed, options):
        return [empty_out(x, options[:4]) for x in (q, k, v)]

    def keep(ctx, inputs, output):
        *tensors, ctx.options = inputs
        ctx.mark_non_differentiable(*output[1:])
        out, row_max, row_sum, unrounded = output
        ctx.save_for_backward(*tensors, unrounded if tensors[0].dtype in HALVES else out, row_max,
                              row_sum)

    def differentiate(ctx, dout, *_):
        q, k, v, attention_mask, random, seed, *output = ctx.saved_tensors
        found = backward_call(dout, q, k, v, *output, attention_mask, random, seed, ctx.options)
        wanted = ctx.needs_input_grad
        return (*(x if wanted[i] else None for i, x in enumerate(found)), None, None, None, None)

    backward_call = differentiable_once(gradients, name)
    return differentiable(operator, keep, differentiate, name)


def _bigbird_how(attention_mask, random, seed, fields):
    block, first_block_counts, rule, number = fields
    return (int(block), random, int(first_block_counts), attention_mask,
            _core.Scale.from_rule(int(rule), float(number)))


def _local_how(attention_mask, random, seed, fields):
    chunk, before, after, causal, empty_rows, dropout = fields
    return (int(chunk), int(before), int(after), bool(int(causal)), attention_mask, empty_rows, float(dropout), seed)


_bigbird = _operator("attend_bigbird", _core.attend_bigbird, _core.attend_bigbird_backward,
                     _bigbird_how)
_local = _operator("attend_reformer_local", _core.attend_reformer_local, _core.attend_reformer_local_backward,
                   _local_how)


def _rectangle(random):
    """Lists of lists, perhaps one for each head, as a tensor padded with -1."""
    if random is None or isinstance(random, Tensor):
        return random
    if hasattr(random, "shape"):
        return as_tensor("attend_bigbird: random", random)
    if not isinstance(random, (list, tuple)) or not all(isinstance(row, (list, tuple)) for row in random):
        raise TypeError(f"bigbird: random is a {type(random).__name__}, expected lists of blocks or an array of "
                        "integers")
    each = random if any(isinstance(x, (list, tuple)) for row in random for x in row) else [random]
    rows = max([0] + [len(table) for table in each])
    most = max([0] + [len(row) for table in each for row in table])
    full = [[list(row) + [-1] * (most - len(row)) for row in table]
            + [[-1] * most] * (rows - len(table)) for table in each]
    return torch.tensor(full, dtype=torch.long).reshape(len(each), rows, most)


def attend_bigbird(operands: Any, block: Any, random: Any, first_block_counts: Any, attention_mask: Any, scale: Any,
                   layout: str, context: Any) -> Any:
    all_tensors("attend_bigbird", **dict(zip("qkv", operands)))
    if plain_call(*operands, random, attention_mask):
        how = (block, random, first_block_counts, attention_mask, scale)
        return _core.attend_bigbird(operands, how, layout, context)[0]
    rule, number = scale_of(scale)
    threads, isa = context_of(context)
    options = f"{layout};{threads};{isa};{block};{first_block_counts};{rule};{number}"
    attention_mask = as_tensor("attend_bigbird: attention_mask", attention_mask)
    return _bigbird(*autocast(*operands), attention_mask, _rectangle(random), None, options)[0]


def attend_reformer_local(operands: Any, how: Any, padding: Any, seed: Any, layout: str, context: Any) -> Any:
    chunk, before, after, causal, empty_rows, dropout = how
    all_tensors("attend_reformer_local", **dict(zip("qkv", operands)))
    if plain_call(*operands, padding):
        how = (*how[:4], padding, empty_rows, dropout, number_of(as_seed(seed, dropout)))
        return _core.attend_reformer_local(operands, how, layout, context)[0]
    threads, isa = context_of(context)
    options = (f"{layout};{threads};{isa};{chunk};{before};{after};{1 if causal else 0};{empty_rows};"
               f"{real('dropout', dropout)}")
    padding = as_tensor("attend_reformer_local: attention_mask", padding)
    return _local(*autocast(*operands), padding, None, as_seed(seed, dropout), options)[0]
