"""Reformer's hashed attention in one call."""

from __future__ import annotations

from typing import NamedTuple

from rapt import _core, _given
from rapt.attention import attend, refuse_watched
from rapt.patterns import lsh_pattern


class LshRecall(NamedTuple):
    """How much of attention over all keys a hashed one finds, averaged over the queries that see a
    key."""

    top: float  # share of the `top` keys with the largest logits that a query meets
    mass: float  # share of the softmax over all keys that lies on keys it meets
    keys: float  # share of all its keys that it meets: what a random choice would find
    queries: int  # that the averages are over


def lsh(qk, v, *, chunk=64, rounds=1, buckets=(), seed=0, before=1, after=0, once=False,
        pattern=None, rotations=None, scale=None, dropout=0.0, dropout_seed=None, return_lse=False,
        layout="bhld", context=None):
    """Attention among tokens that random rotations hash alike; qk are queries and keys at once.

    `seed` draws the rotations as torch would; `rotations` [heads, dim, rounds, half the sum of the
    bucket factors] gives others. `pattern` restricts what the buckets allow, "causal" for
    instance. For queries apart from keys put lsh_pattern(shared=False) into attend.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1, 2, 256, 8), dtype=np.float32)
    >>> lsh(x, x, chunk=32, rounds=2, buckets=[8], pattern="causal").shape
    (1, 2, 256, 8)
    """
    once = _given.flag("lsh: once", once)
    factors = _given.list_of("lsh: buckets", buckets, "a list of numbers")
    hashed = lsh_pattern(chunk, rounds, factors, seed, before, after, True, once)
    if pattern is not None:
        hashed = hashed & pattern
    return attend(qk, qk, v, hashed, scale=scale, rotations=rotations, dropout=dropout,
                  seed=dropout_seed, return_lse=return_lse, layout=layout, context=context)


def lsh_recall(q, k, pattern, *, top=16, queries=256, scale=None, rotations=None, layout="bhld",
               context=None) -> LshRecall:
    """Measures a pattern with an lsh leaf on q and k [batch, heads, tokens, dim] against the same
    pattern without the leaf, for some evenly spaced queries of each item and head (0: all). With
    shared keys pass the same array twice.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1, 2, 256, 8), dtype=np.float32)
    >>> found = lsh_recall(x, x, "lsh(32, 4, {8}) & causal", top=4)
    >>> found.top > found.keys
    True
    """
    refuse_watched("lsh_recall", q, k, rotations)
    how = (pattern, scale, 0.0, None, None, rotations, None, 0.0, None, False, context)
    return LshRecall(*_core.lsh_recall(q, k, how, layout, top, queries))
