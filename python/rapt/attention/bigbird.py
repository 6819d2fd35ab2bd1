"""BigBird's block-sparse attention."""

from __future__ import annotations

from typing import Any, Literal, Optional, overload

from rapt import _core, _given, _renamed
from rapt._tensors import refuse_traced, torch_functions
from rapt.attention.options import BigBird, values_of
from rapt.attention.results import Attended, Gradients, Rows, saved
from rapt.typing import ArrayLike, Integers, Layout, RandomBlocks, ScaleLike


@overload
def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                   options: Optional[BigBird] = ..., block: int = ...,
                   random: Optional[RandomBlocks] = ..., first_block_counts: int = ...,
                   attention_mask: Optional[Integers] = ..., scale: ScaleLike = ..., return_attended: Literal[True],
                   layout: Layout = ..., context: Optional[_core.Context] = ...) -> Attended: ...


@overload
def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                   options: Optional[BigBird] = ..., block: int = ...,
                   random: Optional[RandomBlocks] = ..., first_block_counts: int = ...,
                   attention_mask: Optional[Integers] = ..., scale: ScaleLike = ..., return_attended: bool = ...,
                   layout: Layout = ..., context: Optional[_core.Context] = ...) -> Any: ...


@_renamed.keywords(return_rows="return_attended", real="attention_mask")
def attend_bigbird(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                   options: Optional[BigBird] = None, block: int = 64,
                   random: Optional[RandomBlocks] = None, first_block_counts: int = 1,
                   attention_mask: Optional[Integers] = None, scale: ScaleLike = None, return_attended: bool = False,
                   layout: Layout = "bhld", context: Optional[_core.Context] = None) -> Any:
    """BigBird's attention: tokens of the first and the last block see every key; those of any other block
    see the first and the last block, their own, its two neighbours and some random ones.

    q, k, v [batch, heads, tokens, dim], any number of tokens. random: the blocks of each query block, as
    lists or as integers [blocks, most], negative ones ignored; or such for each head.
    first_block_counts: how often the first block's keys count for the blocks in between (Transformers at
    inference: 1 + num_random_blocks). attention_mask [batch, tokens] or [tokens]: 0 is padding, which sees no
    key and which no query sees. PyTorch tensors get gradients; for others return_attended=True returns an
    Attended for attend_bigbird_backward. options, a rapt.BigBird, has block to scale as one value.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 50, 4), np.float32)
    >>> attend_bigbird(x, x, x, block=8, random=[[], [4], [5]]).shape
    (1, 2, 50, 4)
    """
    if options is not None:
        block, random, first_block_counts, attention_mask, scale = values_of(
            "attend_bigbird", BigBird, options, block=block, random=random, first_block_counts=first_block_counts,
            attention_mask=attention_mask, scale=scale)
    return_attended = _given.flag("attend_bigbird: return_attended", return_attended)
    functions = torch_functions(q, k, v)
    if functions is not None and not return_attended:
        return functions.attend_bigbird((q, k, v), block, random, first_block_counts, attention_mask, scale,
                                        layout, context)
    refuse_traced("attend_bigbird: return_attended", q, k, v)
    how = (block, random, first_block_counts, attention_mask, scale)
    out, lse, rows = _core.attend_bigbird((q, k, v), how, layout, context)
    return Attended(out, lse, Rows(*rows)) if return_attended else out


@_renamed.keywords(real="attention_mask")
def attend_bigbird_backward(dout: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, attended: Attended, *,
                            options: Optional[BigBird] = None, block: int = 64,
                            random: Optional[RandomBlocks] = None, first_block_counts: int = 1,
                            attention_mask: Optional[Integers] = None, scale: ScaleLike = None, layout: Layout = "bhld",
                            context: Optional[_core.Context] = None) -> Gradients:
    """Gradients of sum(dout * out). attended is what attend_bigbird(..., return_attended=True) returned for the
    same arguments."""
    if options is not None:
        block, random, first_block_counts, attention_mask, scale = values_of(
            "attend_bigbird_backward", BigBird, options, block=block, random=random, first_block_counts=first_block_counts,
            attention_mask=attention_mask, scale=scale)
    kept = saved("attend_bigbird_backward", attended)
    refuse_traced("attend_bigbird_backward", dout, q, k, v, kept[0])
    how = (block, random, first_block_counts, attention_mask, scale)
    return Gradients(*_core.attend_bigbird_backward(dout, (q, k, v), kept, how, layout, context))
