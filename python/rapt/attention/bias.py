"""What is added to the logit of a query and a key."""

from __future__ import annotations

from typing import Any, Dict, Literal, Optional, Tuple, Union

from rapt import _given
from rapt.attention.patterns import alibi_slopes
from rapt.typing import Array, ArrayLike, Floats


class Bias:
    """Parts of a bias, joined with +; at most one of each kind.

    The numbers stay in the caller's memory: PyTorch tensors that require gradients get them.
    """

    __slots__ = ("alibi", "kerple", "table", "keys", "dense")

    alibi: Optional[Floats]  # slopes [heads]
    kerple: Optional[Tuple[str, Floats, Floats]]  # kind, amplitudes [heads], rates [heads]
    table: Optional[Tuple[ArrayLike, int, str]]  # values [buckets, heads], max_distance, direction
    keys: Optional[ArrayLike]  # [2 * reach + 1, dim]
    dense: Optional[Tuple[Array, bool]]  # values [batch, heads, queries, keys], fixed

    def __init__(self, alibi: Optional[Floats] = None, kerple: Optional[Tuple[str, Floats, Floats]] = None,
                 table: Optional[Tuple[ArrayLike, int, str]] = None, keys: Optional[ArrayLike] = None,
                 dense: Optional[Tuple[Array, bool]] = None) -> None:
        self.alibi = alibi
        self.kerple = kerple
        self.table = table
        self.keys = keys
        self.dense = dense

    def __add__(self, other: Bias) -> Bias:
        if not isinstance(other, Bias):
            return NotImplemented
        parts: Dict[str, Any] = {}
        for name in Bias.__slots__:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None:
                raise ValueError(f"Bias: both sides of + have a part {name!r}, expected one")
            parts[name] = theirs if mine is None else mine
        return Bias(**parts)

    def __repr__(self) -> str:
        return f"Bias({' + '.join(n for n in Bias.__slots__ if getattr(self, n) is not None)})"


def alibi(slopes: Union[int, Floats]) -> Bias:
    """-slope[head] * distance; a number of heads means the published slopes."""
    return Bias(alibi=alibi_slopes(slopes) if isinstance(slopes, int) else slopes)


def kerple_log(amplitudes: Floats, rates: Floats) -> Bias:
    """KERPLE: -amplitude * ln(1 + rate * distance), one of each per head."""
    return Bias(kerple=("log", amplitudes, rates))


def kerple_power(amplitudes: Floats, rates: Floats) -> Bias:
    """KERPLE: -amplitude * distance ** rate, one of each per head."""
    return Bias(kerple=("power", amplitudes, rates))


def t5_bias(values: ArrayLike, max_distance: int = 128, direction: Literal["both", "past"] = "both") -> Bias:
    """values[bucket(key - query), head] with T5's buckets."""
    return Bias(table=(values, max_distance, direction))


def relative_keys(table: ArrayLike) -> Bias:
    """Shaw: the key of a pair is k_j + table[clip(j - i, -reach, reach) + reach]."""
    return Bias(keys=table)


def dense_bias(values: ArrayLike, fixed: bool = False) -> Bias:
    """Numbers added to the logits, broadcast to [batch, heads, queries, keys]; -inf hides a pair.

    fixed=True skips its gradient, which takes a pass of its own.
    """
    return Bias(dense=(values, _given.flag("dense_bias: fixed", fixed)))


def as_bias(given: Union[Bias, ArrayLike, None]) -> Optional[Bias]:
    """An array alone is a dense bias."""
    return given if given is None or isinstance(given, Bias) else dense_bias(given)


def arrays_of(bias: Optional[Bias]) -> Tuple[Any, ...]:
    """Every array of a Bias."""
    if bias is None:
        return ()
    kerple = bias.kerple[1:] if bias.kerple else (None, None)
    return (bias.alibi, *kerple, bias.table[0] if bias.table else None, bias.keys,
            bias.dense[0] if bias.dense else None)
