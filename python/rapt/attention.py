"""attend and its gradients."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from rapt import _core, _given
from rapt.bias import Bias, arrays_of, as_bias

WANT_LSE, WANT_STATS, WANT_ROWS = 1, 2, 4


class Stats(NamedTuple):
    """What attention did, per query row [batch, heads, queries]."""

    entropy: Any  # of the probabilities, in nats
    largest: Any  # largest probability of a key
    logit_variance: Any  # over the visible keys
    jacobian_norm: Any  # Frobenius norm of d probabilities / d logits
    reach: Any  # mean distance under the probabilities
    sink_mass: Any  # probability of the sink, or of key 0 if there is none


class Gradients(NamedTuple):
    """Gradients; a part that the call did not have is None."""

    dq: Any
    dk: Any
    dv: Any
    dslopes: Any = None
    dkerple: Any = None  # [2, heads]: of the amplitudes, of the rates
    dtable: Any = None
    drelative_keys: Any = None
    drelative_values: Any = None
    ddense: Any = None
    dsinks: Any = None


side = None  # rapt._torch, as soon as that is imported


def _torch_module():
    from rapt import _torch  # sets side

    return _torch


def torch_side(*arrays):
    """rapt._torch if one of the arrays is a PyTorch tensor, else None. Imports no torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for array in arrays:
        if isinstance(array, torch.Tensor):
            return side or _torch_module()
    return None


def refuse_watched(where, *arrays, bias=None):
    """For calls that are no operators: gradients, traces and transforms would be lost."""
    arrays += arrays_of(bias)
    found = torch_side(*arrays)
    if found is not None:
        found.refuse_gradients(where, *arrays)


def refuse_mixed(where, **operands):
    kinds = [f"{name} a {type(x).__name__}" for name, x in operands.items()]
    raise TypeError(f"{where}: {', '.join(kinds)}, expected all of one library")


def check_dropout(dropout, seed):
    if dropout and seed is None:
        raise ValueError("attend: dropout without a seed; pass seed=, a new one for each call")


def attend(q, k, v, pattern=None, *, scale=None, softcap=0.0, bias=None, relative_values=None,
           rotations=None, sinks=None, dropout=0.0, seed=None, return_lse=False,
           return_stats=False, return_rows=False, layout="bhld", context=None):
    """Softmax attention of each query over the keys its pattern lets it see.

    q [batch, heads, queries, dim]; k [batch, kv_heads, keys, dim]; v [batch, kv_heads, keys,
    value_dim]; kv_heads divides heads. With layout="blhd" tokens come before heads, in and out.
    Queries are the newest positions: query i stands at keys - queries + i. A query that sees no key
    gives zeros and lse = -inf.

    pattern: a Pattern, its text ("causal & window(512, 0)") or a Plan; None: all see all.
    scale: None (1 / sqrt(dim)), a number, "inverse_dim", "none", "log_n" or a Scale.
    softcap: 0 for none; c: c * tanh(logit / c), before the bias.
    bias: a Bias (alibi, t5_bias, ...), or an array that is added to the logits.
    sinks: one logit per head that takes probability and gives no value.
    dropout, seed: each probability is dropped at this rate, decided by the seed alone. PyTorch
    tensors may leave the seed out; it is drawn from torch's generator then.

    Returns the output, or a tuple of it and what was asked for: lse [batch, heads, queries], Stats,
    rows (what attend_backward needs).

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 4), np.float32)
    >>> out, lse = attend(x, x, x, "causal", return_lse=True)
    >>> out.shape, lse.shape
    ((1, 2, 5, 4), (1, 2, 5))
    """
    if bias is not None and not isinstance(bias, Bias):
        bias = as_bias(bias)
    wanted = 0
    if not (return_lse is return_stats is return_rows is False):  # the usual call asks for nothing
        wanted = wants("attend", return_lse, return_stats, return_rows)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(q, torch.Tensor):
        result = (side or _torch_module()).attend(q, k, v, (pattern, scale, softcap, bias, relative_values, rotations,
                                         sinks, dropout, seed, False, context), layout, wanted)
    else:
        if torch is not None and (isinstance(k, torch.Tensor) or isinstance(v, torch.Tensor)):
            refuse_mixed("attend", q=q, k=k, v=v)
        if torch is not None:
            refuse_watched("attend", relative_values, rotations, sinks, bias=bias)
        if dropout and seed is None:
            check_dropout(dropout, seed)
        result = _core.attend(q, k, v, (pattern, scale, softcap, bias, relative_values, rotations,
                                        sinks, dropout, seed, False, context), layout, wanted)
    return with_stats(result, wanted) if wanted & WANT_STATS else result


def wants(where, return_lse, return_stats, return_rows=False):
    return ((_given.flag(f"{where}: return_lse", return_lse) and WANT_LSE)
            | (_given.flag(f"{where}: return_stats", return_stats) and WANT_STATS)
            | (_given.flag(f"{where}: return_rows", return_rows) and WANT_ROWS))


def with_stats(result, wanted):
    at = 2 if wanted & WANT_LSE else 1
    return result[:at] + (Stats(*result[at]),) + result[at + 1:]


def attend_backward(dout, q, k, v, out, rows, pattern=None, *, scale=None, softcap=0.0, bias=None,
                    relative_values=None, rotations=None, sinks=None, dropout=0.0, seed=None,
                    layout="bhld", context=None) -> Gradients:
    """Gradients of sum(dout * out); `out` and `rows` come from attend with the same arguments.

    PyTorch tensors need none of this: call backward() on what attend returned.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 4), np.float32)
    >>> out, rows = attend(x, x, x, "causal", return_rows=True)
    >>> attend_backward(x, x, x, x, out, rows, "causal").dq.shape
    (1, 2, 5, 4)
    """
    check_dropout(dropout, seed)
    refuse_watched("attend_backward", dout, q, k, v, out)
    how = (pattern, scale, softcap, as_bias(bias), relative_values, rotations, sinks, dropout, seed,
           False, context)
    return Gradients(*_core.attend_backward(dout, q, k, v, out, _given.rows("attend_backward", rows),
                                             how, layout))


def explain(q, k, v, pattern=None, *, scale=None, softcap=0.0, bias=None, relative_values=None,
            sinks=None, dropout=0.0, dtype=None, context=None) -> str:
    """Which kernel, instruction set, tiles and threads a call would use, in words.

    q, k and v are shapes [batch, heads, tokens, dim], or arrays that have one; dtype is that of q, or f32.

    >>> "3 of 4 visited" in explain((1, 8, 128, 64), (1, 8, 128, 64), (1, 8, 128, 64), "causal")
    True
    """
    how = (pattern, scale, softcap, as_bias(bias), relative_values, None, sinks, dropout, 0, False,
           context)
    shapes = [_given.shape(f"explain: {name}", x) for name, x in (("q", q), ("k", k), ("v", v))]
    return _core.explain(*shapes, how, _given.dtype_of("explain: dtype", dtype, q))
