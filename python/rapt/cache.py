"""Keys and values of growing sequences."""

from __future__ import annotations

from rapt import _core, _given
from rapt.attention import WANT_STATS, check_dropout, refuse_watched, wants, with_stats
from rapt.bias import as_bias


class KvCache(_core.KvCache):
    """Keys and values of growing sequences, stored in the layout the kernels read.

    type is "f32", "bf16" or "int8". With a window, each of the tokens appended last finds itself
    and the window - 1 tokens before it, and the first `pinned` ones. Threads may share a cache.

    lsh, a pattern with an lsh leaf such as lsh_pattern(64, 4), makes a cache for patterns with that
    leaf and no others: tokens are hashed when they are appended, and q are the newest keys once
    more. lsh_tokens is the length that buckets are chosen for where the leaf names none; rotations
    [heads, dim, rounds, half the sum of the bucket factors] stand for those of its seed.

    >>> import numpy as np
    >>> cache = KvCache(kv_heads=2, dim=4)
    >>> sequence = cache.add()
    >>> x = np.ones((1, 2, 3, 4), np.float32)
    >>> cache.append(sequence, x, x)
    >>> cache.attend(x[:, :, 2:], [sequence], "causal").shape
    (1, 2, 1, 4)
    """

    def __init__(self, kv_heads, dim, value_dim=0, type="f32", window=0, pinned=0, context=None, lsh=None,
                 lsh_tokens=0, rotations=None):
        sizes = {"kv_heads": kv_heads, "dim": dim, "value_dim": value_dim, "window": window, "pinned": pinned,
                 "lsh_tokens": lsh_tokens}
        super().__init__(**{name: _given.whole(f"KvCache: {name}", size) for name, size in sizes.items()},
                         type=_given.word("KvCache: type", type, "bf16"), lsh=lsh, rotations=rotations,
                         context=_given.context("KvCache", context))

    def __reduce_ex__(self, protocol):
        raise TypeError("KvCache: a cache cannot be copied or pickled, its pages live in this process; fork(sequence) "
                        "copies a sequence, and a new KvCache with append() makes another")

    def fork(self, sequence):
        """A new sequence with the tokens of another, at the price of a page table; returns its number."""
        return super().fork(_sequence("fork", sequence))

    def remove(self, sequence):
        """Forgets a sequence; pages that no other has are used again."""
        super().remove(_sequence("remove", sequence))

    def append(self, sequence, k, v, layout="bhld"):
        """Adds tokens: k [1, kv_heads, tokens, dim], v [1, kv_heads, tokens, value_dim]."""
        refuse_watched("KvCache.append", k, v)
        super().append(_sequence("append", sequence), k, v, layout)

    def append_padding(self, sequence, tokens):
        """Hashed caches: adds positions that no query sees."""
        super().append_padding(_sequence("append_padding", sequence),
                               _given.whole("KvCache.append_padding: tokens", tokens))

    def truncate(self, sequence, tokens):
        """Forgets all but the first tokens."""
        super().truncate(_sequence("truncate", sequence), _given.whole("KvCache.truncate: tokens", tokens))

    def tokens(self, sequence):
        """Tokens appended so far."""
        return super().tokens(_sequence("tokens", sequence))

    def attend(self, q, sequences, pattern=None, *, scale=None, softcap=0.0, bias=None,
               relative_values=None, sinks=None, dropout=0.0, seed=None, strict=False,
               return_lse=False, return_stats=False, layout="bhld", context=None):
        """Attention of q [batch, heads, queries, dim]: item i sees sequence sequences[i], whose
        newest tokens the queries are. No gradients."""
        check_dropout(dropout, seed)
        bias = as_bias(bias)
        refuse_watched("KvCache.attend", q, relative_values, sinks, bias=bias)
        wanted = wants("KvCache.attend", return_lse, return_stats)
        strict = _given.flag("KvCache.attend: strict", strict)
        how = (pattern, scale, softcap, bias, relative_values, None, sinks, dropout, seed, strict, context)
        result = self._attend(q, sequences, how, layout, wanted)
        return with_stats(result, wanted) if wanted & WANT_STATS else result

    def explain(self, q, sequences, pattern=None, *, scale=None, softcap=0.0, bias=None, relative_values=None,
                sinks=None, dropout=0.0, strict=False, dtype=None, context=None) -> str:
        """Which route attend would take, in words.

        q is a shape [batch, heads, queries, dim], or an array that has one; dtype is that of q, or f32. sequences are those of attend, and
        what it refuses of them is refused with the same words; a number is that of the tokens that a sequence
        would have.

        >>> cache = KvCache(kv_heads=2, dim=64, type="int8")
        >>> "cache     int8" in cache.explain((1, 8, 1, 64), 4096, "causal")
        True
        >>> "cache     int8" in cache.explain((1, 8, 1, 64), [cache.add()])
        True
        """
        strict = _given.flag("KvCache.explain: strict", strict)
        how = (pattern, scale, softcap, as_bias(bias), relative_values, None, sinks, dropout, 0, strict, context)
        if hasattr(sequences, "__index__") and not hasattr(sequences, "__len__"):
            sequences = _given.whole("explain: tokens", sequences, 0)
        return self._explain(_given.shape("explain: q", q), sequences, how,
                             _given.dtype_of("explain: dtype", dtype, q))


def _sequence(method, value):
    return _given.whole(f"KvCache.{method}: sequence", value)
