"""Attention over blocks of tokens: BigBird's, and Reformer's local one."""

from __future__ import annotations

from rapt import _core, _given
from rapt.attention import Gradients, check_dropout, refuse_watched, torch_side


def attend_bigbird(q, k, v, *, block=64, random=None, first_block_counts=1, real=None, scale=None,
                   return_rows=False, layout="bhld", context=None):
    """BigBird's attention: tokens of the first and the last block see every key, those of any other
    the first and the last block, their own, its two neighbours and some random ones.

    q, k, v [batch, heads, tokens, dim], any number of tokens. random: the blocks of each query
    block, as lists or as integers [blocks, most] of which negative ones say nothing; or such for
    each head. first_block_counts: how often the first block's keys count for the blocks between
    (Transformers at inference: 1 + num_random_blocks). real [batch, tokens] or [tokens]: 0 is
    padding, which sees nothing and is seen by none. PyTorch tensors get gradients; others use
    attend_bigbird_backward with the rows.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 50, 4), np.float32)
    >>> attend_bigbird(x, x, x, block=8, random=[[], [4], [5]]).shape
    (1, 2, 50, 4)
    """
    return_rows = _given.flag("attend_bigbird: return_rows", return_rows)
    side = torch_side(q, k, v)
    if side is not None and not return_rows:
        return side.attend_bigbird((q, k, v), block, random, first_block_counts, real, scale, layout,
                                   context)
    refuse_watched("attend_bigbird: return_rows", q, k, v)
    how = (block, random, first_block_counts, real, scale)
    return _parts(_core.attend_bigbird((q, k, v), how, layout, context), return_rows)


def attend_bigbird_backward(dout, q, k, v, out, rows, *, block=64, random=None,
                            first_block_counts=1, real=None, scale=None, layout="bhld",
                            context=None) -> Gradients:
    """Gradients of sum(dout * out); `out` and `rows` come from attend_bigbird(...,
    return_rows=True) with the same arguments."""
    refuse_watched("attend_bigbird_backward", dout, q, k, v, out)
    how = (block, random, first_block_counts, real, scale)
    return Gradients(*_core.attend_bigbird_backward(
        dout, (q, k, v), (out, *_given.rows("attend_bigbird_backward", rows)), how, layout, context))


def local(q, k, v, *, chunk=64, before=1, after=0, causal=False, real=None, blind="zeros",
          dropout=0.0, seed=None, return_rows=False, layout="bhld", context=None):
    """Reformer's local attention: tokens are cut into chunks that lie in a ring, and a query sees
    its own chunk and its neighbours, each as often as it is met.

    q, k, v [batch, heads, tokens, dim], any number of tokens. real [batch, tokens] or [tokens]: 0
    is padding, which no query sees. A query whose keys are all padding gives zeros, or with
    blind="sum" what Transformers gives: the values around it, added up. PyTorch tensors get
    gradients; others use local_backward with the rows.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 50, 4), np.float32)
    >>> local(x, x, x, chunk=16, causal=True).shape
    (1, 2, 50, 4)
    """
    causal, return_rows = _given.flag("local: causal", causal), _given.flag("local: return_rows", return_rows)
    side = torch_side(q, k, v)
    if side is not None and not return_rows:
        return side.local((q, k, v), (chunk, before, after, causal, blind, dropout), real, seed,
                          layout, context)
    check_dropout(dropout, seed)
    refuse_watched("local: return_rows", q, k, v)
    how = (chunk, before, after, causal, real, blind, dropout, seed or 0)
    return _parts(_core.attend_local((q, k, v), how, layout, context), return_rows)


def local_backward(dout, q, k, v, out, rows, *, chunk=64, before=1, after=0, causal=False,
                   real=None, blind="zeros", dropout=0.0, seed=None, layout="bhld",
                   context=None) -> Gradients:
    """Gradients of sum(dout * out); `out` and `rows` come from local(..., return_rows=True) with the
    same arguments."""
    check_dropout(dropout, seed)
    refuse_watched("local_backward", dout, q, k, v, out)
    causal = _given.flag("local_backward: causal", causal)
    how = (chunk, before, after, causal, real, blind, dropout, seed or 0)
    return Gradients(*_core.attend_local_backward(
        dout, (q, k, v), (out, *_given.rows("local_backward", rows)), how, layout, context))


def _parts(found, return_rows):
    out, *rows = found
    return (out, tuple(rows)) if return_rows else out
