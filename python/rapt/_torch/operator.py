"""Operators with gradients, under torch.func as well."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch
from torch.utils import _pytree as pytree

from rapt._torch.modes import transformed


def _each_item(call: Callable[..., Any], info: Any, in_dims: Any, arguments: Any) -> Tuple[Any, Any]:
    """vmap, item by item: the results of each, stacked."""
    flat, tree = pytree.tree_flatten(tuple(arguments))
    dims = pytree._broadcast_to_and_flatten(tuple(in_dims), tree)
    found = []
    for item in range(info.batch_size):
        own = [x if dim is None else x.select(dim, item) for x, dim in zip(flat, dims)]
        found.append(call(*pytree.tree_unflatten(own, tree)))
    if torch.is_tensor(found[0]):
        return torch.stack(found), 0
    kind = type(found[0])
    return kind(torch.stack(part) for part in zip(*found)), kind([0] * len(found[0]))


def differentiable(op: Any, keep: Callable[..., None], gradients: Callable[..., Any],
                   where: str) -> Callable[..., Any]:
    """Gives an operator its gradients and vmap. Returns what callers call: the operator, or under
    torch.func and forward-mode AD the same as an autograd.Function, which those need.

    keep(ctx, inputs, output) saves, gradients(ctx, *grads) answers, as in torch.library."""
    def refuse(ctx: Any, *tangents: Any) -> None:
        raise NotImplementedError(f"{where} has no forward-mode derivatives (jvp, jacfwd, dual "
                                  "tensors); use backward(), torch.func.vjp or torch.func.jacrev")

    def mapped(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return _each_item(call, info, in_dims, arguments)

    def forward(*arguments: Any) -> Any:
        found = op(*arguments)
        return tuple(found) if isinstance(found, list) else found  # autograd sees no tensors in lists

    op.register_autograd(gradients, setup_context=keep)
    op.register_vmap(mapped)
    function: Any = type(op._opoverload._opname, (torch.autograd.Function,), {
        "forward": staticmethod(forward),
        "setup_context": staticmethod(lambda ctx, inputs, output: keep(ctx, inputs, output)),
        "backward": staticmethod(gradients),
        "jvp": staticmethod(refuse),
        "vmap": staticmethod(mapped),
    })

    def call(*arguments: Any) -> Any:
        return function.apply(*arguments) if transformed() else op(*arguments)

    return call


def differentiable_once(op: Any, where: str) -> Callable[..., Any]:
    """An operator that gives gradients and has none itself."""
    def refuse(ctx: Any, *grads: Any) -> None:
        raise NotImplementedError(f"{where} has no second derivatives; expected one backward(), without "
                                  "create_graph")

    return differentiable(op, lambda ctx, inputs, output: None, refuse, where)
