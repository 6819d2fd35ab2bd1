"""Leading axes as PyTorch's attention broadcasts them. Arrays are numpy's or PyTorch's."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from rapt._tensors import torch_functions


def library(*arrays: Any) -> Any:
    """torch if one of them is a tensor, else numpy."""
    if torch_functions(*arrays) is not None:
        import torch

        return torch
    import numpy

    return numpy


def expanded(x: Any, shape: Sequence[int]) -> Any:
    """A view of the array in that shape."""
    shape = tuple(shape)
    if tuple(x.shape) == shape:
        return x
    return x.expand(shape) if torch_functions(x) is not None else library(x).broadcast_to(x, shape)


def check_operand(where: str, name: str, x: Any) -> None:
    if not hasattr(x, "ndim") or not hasattr(x, "shape"):
        raise TypeError(f"{where}: {name} is a {type(x).__name__}, expected an array: torch or numpy")
    if x.ndim < 2:
        raise ValueError(f"{where}: {name} has {x.ndim} axes, expected at least 2: [..., tokens, dim]")


def _joined(where: str, shapes: List[Any], what: str) -> List[int]:
    """The shape that all broadcast to, aligned at their ends."""
    rank = max(len(shape) for shape in shapes)
    joined = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1 and joined[axis] not in (1, size):
                raise ValueError(f"{where}: {what} have leading axes {', '.join(map(str, map(list, shapes)))}, "
                                 "expected axes that broadcast")
            if size != 1:
                joined[axis] = size
    return joined


def _repeated(x: Any, heads: int) -> Any:
    """Every head of x, [..., heads, tokens, dim], once for each query head that shares it."""
    times = heads // x.shape[-3]
    return x.repeat_interleave(times, -3) if torch_functions(x) is not None else library(x).repeat(x, times, -3)


def _heads(where: str, q: Any, k: Any, v: Any, shared: bool) -> Tuple[Any, ...]:
    """q, k and v with heads that the core takes: as many of k as of v, dividing those of q."""
    counts = [x.shape[-3] for x in (q, k, v)]
    if shared:
        for name, count in zip(("key", "value"), counts[1:]):
            if not count or counts[0] % count:
                raise ValueError(f"{where}: query has {counts[0]} heads and {name} {count}, expected a divisor")
        return (q, k, v) if counts[1] == counts[2] else (q, _repeated(k, counts[0]), _repeated(v, counts[0]))
    heads = 0 if 0 in counts else max(counts)
    if any(count not in (1, heads) for count in counts):
        raise ValueError(f"{where}: query has {counts[0]} heads, key {counts[1]} and value {counts[2]}; "
                         "enable_gqa=True lets key heads be shared")
    if counts[1] == counts[2]:  # the core shares a single key head
        return expanded(q, (*q.shape[:-3], heads, *q.shape[-2:])), k, v
    return tuple(expanded(x, (*x.shape[:-3], heads, *x.shape[-2:])) for x in (q, k, v))


def four_axes(where: str, q: Any, k: Any, v: Any, shared: bool) -> Tuple[Any, Any, Any, Any]:
    """q, k, v as [batch, heads, tokens, dim], and the leading axes of the result, heads among them.
    `shared`: key heads may be shared by groups of query heads."""
    if q.ndim == k.ndim == v.ndim == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2]:
        return q, k, v, q.shape[:2]
    rank = max(x.ndim for x in (q, k, v))
    q, k, v = (x if x.ndim >= 3 else x[None] for x in (q, k, v))
    q, k, v = _heads(where, q, k, v, shared)
    batch = _joined(where, [x.shape[:-3] for x in (q, k, v)], "query, key and value")
    lead = (*batch, q.shape[-3]) if rank > 2 else ()
    q, k, v = (expanded(x, (*batch, *x.shape[-3:])) for x in (q, k, v))
    q, k, v = (x if x.ndim == 4 else x.reshape(_product(batch), *x.shape[-3:]) for x in (q, k, v))
    return q, k, v, lead


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total = total * size
    return total


def mask_axes(where: str, mask: Any, lead: Any, queries: int, keys: int, known: bool = True) -> Any:
    """A mask that broadcasts to [*lead, queries, keys] as [batch or 1, heads or 1, queries or 1, keys or 1].
    `known`: sizes may be compared."""
    full = (*(1,) * (2 - len(lead)), *lead, queries, keys)
    if mask.ndim > len(full) or known and any(
            size not in (1, most) for size, most in zip(mask.shape[::-1], full[::-1])):
        raise ValueError(f"{where}: attn_mask has shape {list(mask.shape)}, expected to broadcast to "
                         f"{[*lead, queries, keys]}")
    mask = mask.reshape(*(1,) * (len(full) - mask.ndim), *mask.shape)
    if mask.ndim == 4:
        return mask
    if not all(size == 1 for size in mask.shape[:-3]):
        mask = expanded(mask, (*full[:-3], *mask.shape[-3:]))
    return mask.reshape(_product(mask.shape[:-3]), *mask.shape[-3:])


def nonempty(q: Any, k: Any, v: Any) -> Tuple[Any, Any, Any]:
    """Adds a channel of zeros where there is none: the core needs one, and scores of 0 are scores."""
    if q.shape[-1] == 0:
        q, k = _padded(q), _padded(k)
    return q, k, _padded(v) if v.shape[-1] == 0 else v


def _padded(x: Any) -> Any:
    if torch_functions(x) is not None:
        return library(x).nn.functional.pad(x, (0, 1))
    return library(x).pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
