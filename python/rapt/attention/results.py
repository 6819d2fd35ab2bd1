"""What calls return."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Tuple

from rapt import _given
from rapt.typing import Array

#: What the core returns besides the output.
WANT_LSE, WANT_STATS, WANT_ROWS = 1, 2, 4


class Stats(NamedTuple):
    """What attention did, for each query: arrays [batch, heads, queries]."""

    entropy: Array  # of the probabilities, in nats
    largest: Array  # largest probability of a key
    logit_variance: Array  # over the visible keys
    jacobian_norm: Array  # Frobenius norm of d probabilities / d logits
    reach: Array  # mean distance under the probabilities
    sink_mass: Array  # probability of the sink, or of key 0 if there is none


class Rows(NamedTuple):
    """Row statistics of the online softmax: the denominator of a query is sum * 2**max."""

    max: Array  # f32; -inf for a query that sees no key
    sum: Array  # f64
    out: Optional[Array] = None  # the output in f32, if it has 16 bits: gradients need it unrounded


class Attended(NamedTuple):
    """What a call with return_attended=True returns and its backward takes."""

    out: Array
    lse: Array  # [batch, heads, queries]: log of the sum of exp(logit); None for Longformer
    rows: Rows
    global_rows: Optional[Rows] = None  # Longformer: of its global tokens
    stats: Optional[Stats] = None  # with return_stats=True


class Gradients(NamedTuple):
    """Gradients; None for a part that the call did not have."""

    dq: Array
    dk: Array
    dv: Array
    dslopes: Optional[Array] = None
    dkerple: Optional[Array] = None  # [2, heads]: of the amplitudes, of the rates
    dtable: Optional[Array] = None
    drelative_keys: Optional[Array] = None
    drelative_values: Optional[Array] = None
    ddense: Optional[Array] = None
    dsinks: Optional[Array] = None


class LongformerGradients(NamedTuple):
    """Gradients of Longformer's operands; None for those that the call did not have."""

    dq: Array
    dk: Array
    dv: Array
    dq_global: Optional[Array] = None
    dk_global: Optional[Array] = None
    dv_global: Optional[Array] = None


def wants(where: str, return_lse: bool, return_stats: bool, return_attended: bool = False) -> int:
    """The core's word for what is asked for. Rows come with the lse: an Attended has both."""
    return ((WANT_LSE if _given.flag(f"{where}: return_lse", return_lse) else 0)
            | (WANT_STATS if _given.flag(f"{where}: return_stats", return_stats) else 0)
            | (WANT_LSE | WANT_ROWS if _given.flag(f"{where}: return_attended", return_attended) else 0))


def named(found: Tuple[Any, ...], wanted: int) -> Any:
    """The core's tuple (out, lse, stats, rows) of what was wanted, as callers get it."""
    if wanted & WANT_ROWS:
        out, lse, *stats, rows = found
        return Attended(out, lse, Rows(*rows), None, Stats(*stats[0]) if stats else None)
    if wanted & WANT_STATS:
        return (*found[:-1], Stats(*found[-1]))
    return found


def saved(where: str, attended: Any, rows: str = "rows") -> Tuple[Any, Any, Any]:
    """(out, max, sum) that backward takes, of an Attended."""
    if not isinstance(attended, Attended):
        raise TypeError(f"{where}: attended is {_given.said(attended)}, expected the rapt.Attended that the call "
                        "with return_attended=True returned")
    found = getattr(attended, rows)
    if not isinstance(found, Rows):
        raise TypeError(f"{where}: attended.{rows} is {_given.said(found)}, expected a rapt.Rows")
    return attended.out if found.out is None else found.out, found.max, found.sum
