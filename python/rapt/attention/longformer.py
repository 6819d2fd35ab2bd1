"""Longformer's self-attention with its global projections."""

from __future__ import annotations

from typing import Any, Literal, Optional, SupportsIndex, Union, overload

from rapt import _core, _given, _renamed
from rapt._tensors import refuse_traced, torch_functions
from rapt.attention.attend import check_dropout
from rapt.attention.options import Longformer, values_of
from rapt.attention.results import Attended, LongformerGradients, Rows, saved
from rapt.typing import ArrayLike, Integers, Layout, ScaleLike


@overload
def attend_longformer(q: ArrayLike, k: ArrayLike, v: ArrayLike, q_global: Optional[ArrayLike] = ...,
                      k_global: Optional[ArrayLike] = ..., v_global: Optional[ArrayLike] = ..., *,
                      options: Optional[Longformer] = ..., window: int = ..., classes: Optional[Integers] = ...,
                      dilation: Union[int, Integers, None] = ..., causal: bool = ..., scale: ScaleLike = ...,
                      dropout: float = ..., seed: Optional[SupportsIndex] = ..., return_attended: Literal[True],
                      layout: Layout = ..., context: Optional[_core.Context] = ...) -> Attended: ...


@overload
def attend_longformer(q: ArrayLike, k: ArrayLike, v: ArrayLike, q_global: Optional[ArrayLike] = ...,
                      k_global: Optional[ArrayLike] = ..., v_global: Optional[ArrayLike] = ..., *,
                      options: Optional[Longformer] = ..., window: int = ..., classes: Optional[Integers] = ...,
                      dilation: Union[int, Integers, None] = ..., causal: bool = ..., scale: ScaleLike = ...,
                      dropout: float = ..., seed: Optional[SupportsIndex] = ..., return_attended: bool = ...,
                      layout: Layout = ..., context: Optional[_core.Context] = ...) -> Any: ...


@_renamed.keywords(return_rows="return_attended")
def attend_longformer(q: ArrayLike, k: ArrayLike, v: ArrayLike, q_global: Optional[ArrayLike] = None,
                      k_global: Optional[ArrayLike] = None, v_global: Optional[ArrayLike] = None, *,
                      options: Optional[Longformer] = None, window: int = 256, classes: Optional[Integers] = None,
                      dilation: Union[int, Integers, None] = None, causal: bool = False, scale: ScaleLike = None,
                      dropout: float = 0.0, seed: Optional[SupportsIndex] = None, return_attended: bool = False,
                      layout: Layout = "bhld", context: Optional[_core.Context] = None) -> Any:
    """Longformer's attention: a local token sees all global tokens and the local ones at most `window`
    away; a global token sees every token except padding, through projections of its own.

    All operands [batch, heads, tokens, dim]. classes [batch, tokens] or [tokens]: 0 padding, 1 local, 2
    global; None: all local. dilation: one number for each head, or one for all. PyTorch tensors get
    gradients; for others return_attended=True returns an Attended for attend_longformer_backward. options, a
    rapt.Longformer, has window to seed as one value.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 9, 4), np.float32)
    >>> attend_longformer(x, x, x, x, x, x, window=2, classes=[2] + 8 * [1]).shape
    (1, 2, 9, 4)
    """
    if options is not None:
        window, classes, dilation, causal, scale, dropout, seed = values_of(
            "attend_longformer", Longformer, options, window=window, classes=classes, dilation=dilation, causal=causal,
            scale=scale, dropout=dropout, seed=seed)
    causal = _given.flag("attend_longformer: causal", causal)
    return_attended = _given.flag("attend_longformer: return_attended", return_attended)
    operands = (q, k, v, q_global, k_global, v_global)
    functions = torch_functions(*operands)
    if functions is not None and not return_attended:
        return functions.attend_longformer(
            operands, (window, dilation, causal, scale, dropout, seed, classes, context), layout)
    check_dropout(dropout, seed)
    refuse_traced("attend_longformer: return_attended", *operands)
    how = (window, dilation, causal, scale, dropout, seed or 0, classes, context)
    out, lse, rows, global_rows = _core.attend_longformer(operands, how, layout)
    return Attended(out, lse, Rows(*rows), Rows(*global_rows)) if return_attended else out


def attend_longformer_backward(dout: ArrayLike, q: ArrayLike, k: ArrayLike, v: ArrayLike,
                               q_global: Optional[ArrayLike], k_global: Optional[ArrayLike],
                               v_global: Optional[ArrayLike], attended: Attended, *,
                               options: Optional[Longformer] = None, window: int = 256,
                               classes: Optional[Integers] = None, dilation: Union[int, Integers, None] = None,
                               causal: bool = False, scale: ScaleLike = None, dropout: float = 0.0,
                               seed: Optional[SupportsIndex] = None, layout: Layout = "bhld",
                               context: Optional[_core.Context] = None) -> LongformerGradients:
    """Gradients of sum(dout * out). attended is what attend_longformer(..., return_attended=True) returned for
    the same arguments."""
    if options is not None:
        window, classes, dilation, causal, scale, dropout, seed = values_of(
            "attend_longformer_backward", Longformer, options, window=window, classes=classes, dilation=dilation, causal=causal,
            scale=scale, dropout=dropout, seed=seed)
    check_dropout(dropout, seed)
    out, *rows = saved("attend_longformer_backward", attended)
    _, *global_rows = saved("attend_longformer_backward", attended, "global_rows")
    refuse_traced("attend_longformer_backward", dout, q, k, v, q_global, k_global, v_global, out)
    causal = _given.flag("attend_longformer_backward: causal", causal)
    how = (window, dilation, causal, scale, dropout, seed or 0, classes, context)
    return LongformerGradients(*_core.attend_longformer_backward(
        dout, (q, k, v, q_global, k_global, v_global), (out, *rows, *global_rows), how, layout))
