"""Reformer's hashed attention in one call."""

from __future__ import annotations

from rapt import _core
from rapt.attention import attend


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
    hashed = _core.lsh_pattern(chunk, rounds, list(buckets), seed, before, after, True, once)
    if pattern is not None:
        hashed = hashed & pattern
    return attend(qk, qk, v, hashed, scale=scale, rotations=rotations, dropout=dropout,
                  seed=dropout_seed, return_lse=return_lse, layout=layout, context=context)
