"""Lengths that are constants of a trace."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from rapt._torch.operator import differentiable


@torch.library.custom_op("rapt::length_of_the_trace", mutates_args=(), device_types="cpu")
def _length_of_the_trace(x: Tensor, tokens: int, who: str) -> Tensor:
    if x.shape[1] != tokens:
        raise ValueError(f"accelerate: {who} was traced with {tokens} tokens, which decide its blocks, "
                         f"and is called with {x.shape[1]}; expected {tokens} tokens (pad the input), "
                         "or a trace for each length, or torch.compile, which makes one itself")
    return x.clone()


@_length_of_the_trace.register_fake
def _(x, tokens, who):
    return torch.empty_like(x)


_keep_length = differentiable(_length_of_the_trace, lambda ctx, inputs, output: None,
                              lambda ctx, grad: (grad, None, None), "accelerate")


def keep_length(x: Tensor, who: str) -> Tensor:
    """x [batch, tokens, width]. torch.jit.trace and make_fx record a check that later calls have as many
    tokens; torch.compile makes a graph for each length."""
    if not torch.jit.is_tracing() and get_proxy_mode() is None:
        return x
    return _keep_length(x, int(x.shape[1]), who)
