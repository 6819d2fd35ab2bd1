"""Reformer's attention: hashed, and local."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional, Sequence, SupportsIndex, overload

from rapt import _core, _given, _renamed
from rapt._tensors import refuse_traced, torch_functions
from rapt.attention.attend import attend, check_dropout
from rapt.attention.options import Lsh, ReformerLocal, values_of
from rapt.attention.patterns import lsh
from rapt.attention.results import Attended, Gradients, Rows, saved
from rapt.typing import ArrayLike, Integers, Layout, PatternLike, ScaleLike


class LshRecall(NamedTuple):
    """How much of attention over all keys a hashed one finds, averaged over the queries that see a key."""

    top: float  # share of the `top` keys with the largest logits that a query meets
    mass: float  # share of the softmax over all keys that is on keys it meets
    keys: float  # share of all its keys that it meets: what a random choice would find
    queries: int  # that the averages are over


def attend_lsh(qk: ArrayLike, v: ArrayLike, *,
               options: Optional[Lsh] = None, chunk: int = 64, rounds: int = 1, buckets: Sequence[int] = (),
               seed: int = 0, before: int = 1, after: int = 0, once: bool = False, pattern: PatternLike = None,
               rotations: Optional[ArrayLike] = None, scale: ScaleLike = None, dropout: float = 0.0,
               dropout_seed: Optional[SupportsIndex] = None, return_lse: bool = False,
               return_attended: bool = False, layout: Layout = "bhld",
               context: Optional[_core.Context] = None) -> Any:
    """Reformer's hashed attention, among tokens that random rotations hash alike; qk are both queries and
    keys.

    options, a rapt.Lsh, has chunk to once as one value. `seed` draws the rotations as torch would; `rotations` [heads, dim, rounds, half the sum of the bucket
    factors] replaces them. `pattern` restricts what the buckets allow, "causal" for instance. return_attended=True
    returns an Attended, for attend_backward(dout, qk, qk, v, attended, pattern & rapt.lsh(...)). For queries
    that are not the keys, give rapt.lsh(...) to attend.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1, 2, 256, 8), dtype=np.float32)
    >>> attend_lsh(x, x, chunk=32, rounds=2, buckets=[8], pattern="causal").shape
    (1, 2, 256, 8)
    """
    if options is not None:
        chunk, rounds, buckets, seed, before, after, once = values_of(
            "attend_lsh", Lsh, options, chunk=chunk, rounds=rounds, buckets=buckets, seed=seed, before=before,
            after=after, once=once)
    once = _given.flag("attend_lsh: once", once)
    factors = _given.list_of("attend_lsh: buckets", buckets, "a list of numbers")
    hashed = lsh(chunk, rounds, factors, seed, before, after, True, once)
    if pattern is not None:
        hashed = hashed & pattern
    return attend(qk, qk, v, hashed, scale=scale, rotations=rotations, dropout=dropout,
                  seed=dropout_seed, return_lse=return_lse, return_attended=return_attended, layout=layout,
                  context=context)


def lsh_recall(q: ArrayLike, k: ArrayLike, pattern: PatternLike, *, top: int = 16, queries: Optional[int] = 256,
               scale: ScaleLike = None, rotations: Optional[ArrayLike] = None, layout: Layout = "bhld",
               context: Optional[_core.Context] = None) -> LshRecall:
    """Measures a pattern with an lsh leaf on q and k [batch, heads, tokens, dim] against the same pattern
    without the leaf, for some evenly spaced queries of each item and head (None: all). If queries are keys,
    pass the same array twice.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1, 2, 256, 8), dtype=np.float32)
    >>> found = lsh_recall(x, x, "lsh(32, 4, {8}) & causal", top=4)
    >>> found.top > found.keys
    True
    """
    refuse_traced("lsh_recall", q, k, rotations)
    how = (pattern, scale, None, None, None, rotations, None, 0.0, None, False, context)
    return LshRecall(*_core.lsh_recall(q, k, how, layout, top, queries))


@overload
def attend_reformer_local(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                          options: Optional[ReformerLocal] = ..., chunk: int = ..., before: int = ...,
                          after: int = ..., causal: bool = ..., attention_mask: Optional[Integers] = ...,
                          empty_rows: Literal["zeros", "sum"] = ..., dropout: float = ...,
                          seed: Optional[SupportsIndex] = ..., return_attended: Literal[True], layout: Layout = ...,
                          context: Optional[_core.Context] = ...) -> Attended: ...


@overload
def attend_reformer_local(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                          options: Optional[ReformerLocal] = ..., chunk: int = ..., before: int = ...,
                          after: int = ..., causal: bool = ..., attention_mask: Optional[Integers] = ...,
                          empty_rows: Literal["zeros", "sum"] = ..., dropout: float = ...,
                          seed: Optional[SupportsIndex] = ..., return_attended: bool = ..., layout: Layout = ...,
                          context: Optional[_core.Context] = ...) -> Any: ...


@_renamed.keywords(return_rows="return_attended", real="attention_mask", blind="empty_rows")
def attend_reformer_local(q: ArrayLike, k: ArrayLike, v: ArrayLike, *,
                          options: Optional[ReformerLocal] = None, chunk: int = 64, before: int = 1,
                          after: int = 0, causal: bool = False, attention_mask: Optional[Integers] = None,
                          empty_rows: Literal["zeros", "sum"] = "zeros", dropout: float = 0.0,
                          seed: Optional[SupportsIndex] = None, return_attended: bool = False, layout: Layout = "bhld",
                          context: Optional[_core.Context] = None) -> Any:
    """Reformer's local attention: tokens are cut into chunks that form a ring, and a query sees its own
    chunk and its neighbours, each as often as it meets it.

    q, k, v [batch, heads, tokens, dim], any number of tokens. attention_mask [batch, tokens] or [tokens]: 0 is
    padding, which no query sees. A query whose keys are all padding gives zeros, or with empty_rows="sum" what
    Transformers gives: the sum of the values around it. PyTorch tensors get gradients; for others
    return_attended=True returns an Attended for attend_reformer_local_backward. options, a rapt.ReformerLocal,
    has chunk to seed as one value.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 50, 4), np.float32)
    >>> attend_reformer_local(x, x, x, chunk=16, causal=True).shape
    (1, 2, 50, 4)
    """
    if options is not None:
        chunk, before, after, causal, attention_mask, empty_rows, dropout, seed = values_of(
            "attend_reformer_local", ReformerLocal, options, chunk=chunk, before=before, after=after, causal=causal,
            attention_mask=attention_mask, empty_rows=empty_rows, dropout=dropout, seed=seed)
    causal = _given.flag("attend_reformer_local: causal", causal)
    return_attended = _given.flag("attend_reformer_local: return_attended", return_attended)
    functions = torch_functions(q, k, v)
    if functions is not None and not return_attended:
        return functions.attend_reformer_local((q, k, v), (chunk, before, after, causal, empty_rows, dropout), attention_mask, seed,
                                               layout, context)
    check_dropout(dropout, seed)
    refuse_traced("attend_reformer_local: return_attended", q, k, v)
    how = (chunk, before, after, causal, attention_mask, empty_rows, dropout, seed or 0)
    out, lse, rows = _core.attend_reformer_local((q, k, v), how, layout, context)
    return Attended(out, lse, Rows(*rows)) if return_attended else out


@_renamed.keywords(real="attention_mask", blind="empty_rows")
def attend_reformer_local_backward(dout: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, attended: Attended, *,
                                   options: Optional[ReformerLocal] = None, chunk: int = 64, before: int = 1, after: int = 0, causal: bool = False,
                                   attention_mask: Optional[Integers] = None, empty_rows: Literal["zeros", "sum"] = "zeros",
                                   dropout: float = 0.0, seed: Optional[SupportsIndex] = None,
                                   layout: Layout = "bhld", context: Optional[_core.Context] = None) -> Gradients:
    """Gradients of sum(dout * out). attended is what attend_reformer_local(..., return_attended=True) returned
    for the same arguments."""
    if options is not None:
        chunk, before, after, causal, attention_mask, empty_rows, dropout, seed = values_of(
            "attend_reformer_local_backward", ReformerLocal, options, chunk=chunk, before=before, after=after, causal=causal,
            attention_mask=attention_mask, empty_rows=empty_rows, dropout=dropout, seed=seed)
    check_dropout(dropout, seed)
    kept = saved("attend_reformer_local_backward", attended)
    refuse_traced("attend_reformer_local_backward", dout, q, k, v, kept[0])
    causal = _given.flag("attend_reformer_local_backward: causal", causal)
    how = (chunk, before, after, causal, attention_mask, empty_rows, dropout, seed or 0)
    return Gradients(*_core.attend_reformer_local_backward(dout, (q, k, v), kept, how, layout, context))
