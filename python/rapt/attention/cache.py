"""Keys and values of growing sequences."""

from __future__ import annotations

from typing import Any, NoReturn, Optional, Sequence, SupportsIndex, Union

from rapt import _core, _given
from rapt._tensors import refuse_traced
from rapt.attention.attend import check_dropout
from rapt.attention.bias import Bias, arrays_of, as_bias
from rapt.attention.options import Attention, fields
from rapt.attention.results import named, wants
from rapt.typing import ArrayLike, Floats, Integers, Layout, PatternLike, ScaleLike


class KvCache(_core.KvCache):
    """Keys and values of growing sequences, stored in the layout the kernels read.

    value_dim is dim if it is None. type is "f32", "bf16" or "int8". With a window, each of the tokens
    appended last finds itself and the window - 1 tokens before it, and the first `pinned` ones; None
    keeps every token. Calls run in the context of the cache. Threads may share a cache.

    lsh, a pattern with an lsh leaf such as rapt.lsh(64, 4), makes a cache for patterns with that leaf
    and no others: tokens are hashed when they are appended, and q repeats the newest keys.
    lsh_tokens is the length that buckets are chosen for if the leaf names none; rotations [heads, dim,
    rounds, half the sum of the bucket factors] replace those of its seed.

    >>> import numpy as np
    >>> cache = KvCache(kv_heads=2, dim=4)
    >>> sequence = cache.add()
    >>> x = np.ones((1, 2, 3, 4), np.float32)
    >>> cache.append(sequence, x, x)
    >>> cache.attend(x[:, :, 2:], [sequence], "causal").shape
    (1, 2, 1, 4)
    """

    def __init__(self, kv_heads: int, dim: int, value_dim: Optional[int] = None, type: str = "f32",
                 window: Optional[int] = None, pinned: int = 0, context: Optional[_core.Context] = None,
                 lsh: PatternLike = None, lsh_tokens: Optional[int] = None,
                 rotations: Optional[ArrayLike] = None) -> None:
        sizes = {"kv_heads": kv_heads, "dim": dim, "pinned": pinned}
        sizes = {name: _given.whole(f"KvCache: {name}", size) for name, size in sizes.items()}
        optional = {"value_dim": value_dim, "window": window, "lsh_tokens": lsh_tokens}
        sizes.update({name: _positive(name, size) for name, size in optional.items() if size is not None})
        super().__init__(**sizes, type=_given.word("KvCache: type", type, "bf16"), lsh=lsh, rotations=rotations,
                         context=_given.context("KvCache", context))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("KvCache: a cache cannot be copied or pickled, its pages live in this process; fork(sequence) "
                        "copies a sequence, and a new KvCache with append() makes another")

    def fork(self, sequence: int) -> int:
        """A new sequence with the tokens of another; pages are shared. Returns its number."""
        return super().fork(_sequence("fork", sequence))

    def remove(self, sequence: int) -> None:
        """Removes a sequence; pages that no other sequence has are used again."""
        super().remove(_sequence("remove", sequence))

    def append(self, sequence: int, k: ArrayLike, v: ArrayLike,  # type: ignore[override]
               layout: Layout = "bhld") -> None:
        """Adds tokens: k [1, kv_heads, tokens, dim], v [1, kv_heads, tokens, value_dim]."""
        refuse_traced("KvCache.append", k, v)
        super().append(_sequence("append", sequence), k, v, layout)

    def append_padding(self, sequence: int, tokens: int) -> None:
        """Hashed caches: adds positions that no query sees."""
        super().append_padding(_sequence("append_padding", sequence),
                               _given.whole("KvCache.append_padding: tokens", tokens))

    def truncate(self, sequence: int, tokens: int) -> None:
        """Keeps only the first `tokens` tokens."""
        super().truncate(_sequence("truncate", sequence), _given.whole("KvCache.truncate: tokens", tokens))

    def tokens(self, sequence: int) -> int:
        """Tokens appended so far."""
        return super().tokens(_sequence("tokens", sequence))

    def attend(self, q: ArrayLike, sequences: Integers, pattern: Union[Attention, PatternLike] = None, *,
               scale: ScaleLike = None, softcap: Optional[float] = None, bias: Union[Bias, ArrayLike, None] = None,
               relative_values: Optional[ArrayLike] = None, sinks: Optional[Floats] = None, dropout: float = 0.0,
               seed: Optional[SupportsIndex] = None, strict: bool = False, return_lse: bool = False,
               return_stats: bool = False, layout: Layout = "bhld") -> Any:
        """Attention of q [batch, heads, queries, dim]: item i sees sequence sequences[i], whose newest
        tokens are the queries. There are no gradients.

        The options are those of rapt.attend. strict=True gives a token the same bits however its prompt
        was cut into calls."""
        rotations = None
        if type(pattern) is Attention:
            pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed = fields(
                "KvCache.attend", pattern, scale, softcap, bias, relative_values, None, sinks, dropout, seed)
        check_dropout(dropout, seed)
        bias = as_bias(bias)
        refuse_traced("KvCache.attend", q, relative_values, sinks, *arrays_of(bias))
        wanted = wants("KvCache.attend", return_lse, return_stats)
        strict = _given.flag("KvCache.attend: strict", strict)
        how = (pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed, strict, None)
        found: Any = self._attend(q, sequences, how, layout, wanted)
        return named(found, wanted) if wanted else found

    def explain(self, q: Union[ArrayLike, Sequence[int]], sequences: Union[int, Integers],
                pattern: Union[Attention, PatternLike] = None, *, scale: ScaleLike = None,
                softcap: Optional[float] = None, bias: Union[Bias, ArrayLike, None] = None,
                relative_values: Optional[ArrayLike] = None, sinks: Optional[Floats] = None, dropout: float = 0.0,
                seed: Optional[SupportsIndex] = None, strict: bool = False, dtype: Optional[str] = None) -> str:
        """Which route attend would take, in words.

        q is a shape [batch, heads, queries, dim], or an array that has one; dtype is that of q, or f32.
        sequences are those of attend, which refuses the same ones with the same words; a number instead
        means one sequence of that many tokens.

        >>> cache = KvCache(kv_heads=2, dim=64, type="int8")
        >>> "cache     int8" in cache.explain((1, 8, 1, 64), 4096, "causal")
        True
        >>> "cache     int8" in cache.explain((1, 8, 1, 64), [cache.add()])
        True
        """
        rotations = None
        if type(pattern) is Attention:
            pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed = fields(
                "KvCache.explain", pattern, scale, softcap, bias, relative_values, None, sinks, dropout, seed)
        strict = _given.flag("KvCache.explain: strict", strict)
        how = (pattern, scale, softcap, as_bias(bias), relative_values, rotations, sinks, dropout, seed or 0, strict,
               None)
        if hasattr(sequences, "__index__") and not hasattr(sequences, "__len__"):
            sequences = _given.whole("explain: tokens", sequences, 0)
        return self._explain(_given.shape("explain: q", q), sequences, how,
                             _given.dtype_of("explain: dtype", dtype, q))


def _positive(name: str, value: int) -> int:
    size = _given.whole(f"KvCache: {name}", value)
    if size < 1:
        raise ValueError(f"KvCache: {name} is {size}, expected at least 1, or {name}=None for the default")
    return size


def _sequence(method: str, value: int) -> int:
    return _given.whole(f"KvCache.{method}: sequence", value)
