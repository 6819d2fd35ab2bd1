"""attend, its gradients, and which route a call takes."""

from __future__ import annotations

import sys
from typing import Any, Literal, Optional, Sequence, SupportsIndex, Union, overload

from rapt import _core, _given, _tensors
from rapt._renamed import refuse_keywords
from rapt._tensors import refuse_mixed, refuse_traced
from rapt.attention.bias import Bias, arrays_of, as_bias
from rapt.attention.options import Attention, fields
from rapt.attention.results import Attended, Gradients, named, saved, wants
from rapt.typing import ArrayLike, Floats, Layout, PatternLike, ScaleLike


def check_dropout(dropout: Any, seed: Any) -> None:
    if dropout and seed is None:
        raise ValueError("attend: dropout without a seed; pass seed=, a new one for each call")


@overload
def attend(q: ArrayLike, k: ArrayLike, v: ArrayLike, pattern: Union[Attention, PatternLike] = ..., *,
           scale: ScaleLike = ..., softcap: Optional[float] = ..., bias: Union[Bias, ArrayLike, None] = ...,
           relative_values: Optional[ArrayLike] = ..., rotations: Optional[ArrayLike] = ...,
           sinks: Optional[Floats] = ..., dropout: float = ..., seed: Optional[SupportsIndex] = ...,
           return_lse: bool = ..., return_stats: bool = ..., return_attended: Literal[True],
           layout: Layout = ..., context: Optional[_core.Context] = ...) -> Attended: ...


@overload
def attend(q: ArrayLike, k: ArrayLike, v: ArrayLike, pattern: Union[Attention, PatternLike] = ..., *,
           scale: ScaleLike = ..., softcap: Optional[float] = ..., bias: Union[Bias, ArrayLike, None] = ...,
           relative_values: Optional[ArrayLike] = ..., rotations: Optional[ArrayLike] = ...,
           sinks: Optional[Floats] = ..., dropout: float = ..., seed: Optional[SupportsIndex] = ...,
           return_lse: bool = ..., return_stats: bool = ..., return_attended: bool = ...,
           layout: Layout = ..., context: Optional[_core.Context] = ...) -> Any: ...


def attend(q: ArrayLike, k: ArrayLike, v: ArrayLike, pattern: Union[Attention, PatternLike] = None, *,
           scale: ScaleLike = None, softcap: Optional[float] = None, bias: Union[Bias, ArrayLike, None] = None,
           relative_values: Optional[ArrayLike] = None, rotations: Optional[ArrayLike] = None,
           sinks: Optional[Floats] = None, dropout: float = 0.0, seed: Optional[SupportsIndex] = None,
           return_lse: bool = False, return_stats: bool = False, return_attended: bool = False,
           layout: Layout = "bhld", context: Optional[_core.Context] = None, **unknown: Any) -> Any:
    """Softmax attention of each query over the keys its pattern lets it see.

    q [batch, heads, queries, dim]; k [batch, kv_heads, keys, dim]; v [batch, kv_heads, keys,
    value_dim]; kv_heads divides heads. With layout="blhd" tokens come before heads, in and out.
    Queries are the newest positions: query i is at position keys - queries + i. A query that sees no
    key gives zeros and lse = -inf.

    pattern: a Pattern, its text ("window(512, 0)") or a Plan; None: every query sees every
    key. Or a rapt.Attention with all options, which describes them; then the keywords up to seed are
    left out.

    Returns the output, or a tuple of it, the lse [batch, heads, queries] and the Stats, as asked for.
    With return_attended=True it returns an Attended, which attend_backward takes.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 4), np.float32)
    >>> out, lse = attend(x, x, x, "causal", return_lse=True)
    >>> out.shape, lse.shape
    ((1, 2, 5, 4), (1, 2, 5))
    """
    if unknown:
        refuse_keywords("attend", unknown, {"return_rows": "return_attended"})
    if type(pattern) is Attention:
        pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed = fields(
            "attend", pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed)
    if bias is not None and not isinstance(bias, Bias):
        bias = as_bias(bias)
    wanted = 0
    if not (return_lse is return_stats is return_attended is False):  # the usual call asks for nothing
        wanted = wants("attend", return_lse, return_stats, return_attended)
    how = (pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed, False, context)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(q, torch.Tensor):
        found = (_tensors.functions or _tensors.load_functions()).attend(q, k, v, how, layout, wanted)
    else:
        if torch is not None and (isinstance(k, torch.Tensor) or isinstance(v, torch.Tensor)):
            refuse_mixed("attend", q=q, k=k, v=v)
        if torch is not None:
            refuse_traced("attend", relative_values, rotations, sinks, *arrays_of(bias))
        if dropout and seed is None:
            check_dropout(dropout, seed)
        found = _core.attend(q, k, v, how, layout, wanted)
    return named(found, wanted) if wanted else found


def attend_backward(dout: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike, attended: Attended,
                    pattern: Union[Attention, PatternLike] = None, *, scale: ScaleLike = None,
                    softcap: Optional[float] = None, bias: Union[Bias, ArrayLike, None] = None,
                    relative_values: Optional[ArrayLike] = None, rotations: Optional[ArrayLike] = None,
                    sinks: Optional[Floats] = None, dropout: float = 0.0, seed: Optional[SupportsIndex] = None,
                    dlse: Optional[ArrayLike] = None, layout: Layout = "bhld",
                    context: Optional[_core.Context] = None) -> Gradients:
    """Gradients of sum(dout * out), and of sum(dlse * lse) if dlse [batch, heads, queries] is given.

    attended is what attend(..., return_attended=True) returned for the same operands and options. PyTorch
    tensors need none of this: call backward() on what attend returned.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 4), np.float32)
    >>> attended = attend(x, x, x, "causal", return_attended=True)
    >>> attend_backward(x, x, x, x, attended, "causal").dq.shape
    (1, 2, 5, 4)
    """
    if type(pattern) is Attention:
        pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed = fields(
            "attend_backward", pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed)
    check_dropout(dropout, seed)
    out, row_max, row_sum = saved("attend_backward", attended)
    refuse_traced("attend_backward", dout, dlse, q, k, v, out)
    how = (pattern, scale, softcap, as_bias(bias), relative_values, rotations, sinks, dropout, seed, False, context)
    return Gradients(*_core.attend_backward(dout, q, k, v, out, (row_max, row_sum), how, layout, dlse))


def explain(q: Union[ArrayLike, Sequence[int]], k: Union[ArrayLike, Sequence[int]],
            v: Union[ArrayLike, Sequence[int]], pattern: Union[Attention, PatternLike] = None, *,
            scale: ScaleLike = None, softcap: Optional[float] = None, bias: Union[Bias, ArrayLike, None] = None,
            relative_values: Optional[ArrayLike] = None, rotations: Optional[ArrayLike] = None,
            sinks: Optional[Floats] = None, dropout: float = 0.0, seed: Optional[SupportsIndex] = None,
            dtype: Optional[str] = None, context: Optional[_core.Context] = None) -> str:
    """Which route, kernels, instruction set, tiles and threads a call would use, in words.

    q, k and v are shapes [batch, heads, tokens, dim], or arrays that have one; dtype is that of q, or f32.

    >>> "3 of 4 visited" in explain((1, 8, 128, 64), (1, 8, 128, 64), (1, 8, 128, 64), "causal")
    True
    """
    if type(pattern) is Attention:
        pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed = fields(
            "explain", pattern, scale, softcap, bias, relative_values, rotations, sinks, dropout, seed)
    how = (pattern, scale, softcap, as_bias(bias), relative_values, rotations, sinks, dropout, seed or 0, False,
           context)
    return _core.explain(_given.shape("explain: q", q), _given.shape("explain: k", k), _given.shape("explain: v", v),
                         how, _given.dtype_of("explain: dtype", dtype, q))
