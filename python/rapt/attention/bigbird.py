"""BigBird's block-sparse attention."""

from __future__ import annotations

from typing import Any, Literal, Optional, overload

from rapt import _core, _given
from rapt._tensors import refuse_traced, torch_functions
from rapt.attention.results import Attended, Gradients, Rows, saved
from rapt.typing import ArrayLike, Integers, Layout, RandomBlocks, ScaleLike


@overload
def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *, block: int = ...,
                   random: Optional[RandomBlocks] = ..., first_block_counts: int = ...,
                   real: Optional[Integers] = ..., scale: ScaleLike = ..., return_rows: Literal[True],
                   layout: Layout = ..., context: Optional[_core.Context] = ...) -> Attended: ...


@overload
def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *, block: int = ...,
                   random: Optional[RandomBlocks] = ..., first_block_counts: int = ...,
                   real: Optional[Integers] = ..., scale: ScaleLike = ..., return_rows: bool = ...,
                   layout: Layout = ..., context: Optional[_core.Context] = ...) -> Any: ...


def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *, block: int = 64,
                   random: Optional[RandomBlocks] = None, first_block_counts: int = 1,
                   real: Optional[Integers] = None, scale: ScaleLike = None, return_rows: bool = False,
                   layout: Layout = "bhld", context: Optional[_core.Context] = None) -> Any:
    """BigBird's attention: tokens of the first and the last block see every key; those of any other block
    see the first and the last block, their own, its two neighbours and some random ones.

    q, k, v [batch, heads, tokens, dim], any number of tokens. random: the blocks of each query block, as
    lists or as integers [blocks, most], negative ones ignored; or such for each head.
    first_block_counts: how often the first block's keys count for the blocks in between (Transformers at
    inference: 1 + num_random_blocks). real [batch, tokens] or [tokens]: 0 is padding, which sees no
    key and which no query sees. PyTorch tensors get gradients; for others return_rows=True returns an
    Attended for attend_bigbird_backward.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 50, 4), np.float32)
    >>> attend_bigbird(x, x, x, block=8, random=[[], [4], [5]]).shape
    (1, 2, 50, 4)
    """
    return_rows = _given.flag("attend_bigbird: return_rows", return_rows)
    functions = torch_functions(q, k, v)
    if functions is not None and not return_rows:
        return functions.attend_bigbird((q, k, v), block, random, first_block_counts, real, scale, layout, context)
    refuse_traced("attend_bigbird: return_rows", q, k, v)
    how = (block, random, first_block_counts, real, scale)
    out, lse, rows = _core.attend_bigbird((q, k, v), how, layout, context)
    return Attended(out, lse, Rows(*rows)) if return_rows else out


def attend_bigbird_backward(dout: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, attended: Attended, *,
                            block: int = 64, random: Optional[RandomBlocks] = None, first_block_counts: int = 1,
                            real: Optional[Integers] = None, scale: ScaleLike = None, layout: Layout = "bhld",
                            context: Optional[_core.Context] = None) -> Gradients:
    """Gradients of sum(dout * out). attended is what attend_bigbird(..., return_rows=True) returned for the
    same arguments."""
    kept = saved("attend_bigbird_backward", attended)
    refuse_traced("attend_bigbird_backward", dout, q, k, v, kept[0])
    how = (block, random, first_block_counts, real, scale)
    return Gradients(*_core.attend_bigbird_backward(dout, (q, k, v), kept, how, layout, context))
