"""Longformer's self-attention with its global projections."""

from __future__ import annotations

from rapt import _core, _given
from rapt.attention import check_dropout, refuse_watched, torch_side


def longformer(q, k, v, q_global=None, k_global=None, v_global=None, *, window=256, classes=None,
               dilation=None, causal=False, scale=None, dropout=0.0, seed=None, return_rows=False,
               layout="bhld", context=None):
    """A local token sees all global tokens and the local ones at most `window` away; a global token
    sees every token that is no padding, through projections of its own.

    All operands [batch, heads, tokens, dim]. classes [batch, tokens] or [tokens]: 0 padding, 1
    local, 2 global; None: all local. dilation: one number for each head, or one for all. PyTorch
    tensors get gradients; others use longformer_backward with the rows.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 9, 4), np.float32)
    >>> longformer(x, x, x, x, x, x, window=2, classes=[2] + 8 * [1]).shape
    (1, 2, 9, 4)
    """
    causal = _given.flag("longformer: causal", causal)
    return_rows = _given.flag("longformer: return_rows", return_rows)
    operands = (q, k, v, q_global, k_global, v_global)
    side = torch_side(*operands)
    if side is not None and not return_rows:
        return side.longformer(operands, (window, dilation, causal, scale, dropout, seed, classes,
                                          context), layout)
    check_dropout(dropout, seed)
    refuse_watched("longformer: return_rows", *operands)
    how = (window, dilation, causal, scale, dropout, seed or 0, classes, context)
    out, *rows = _core.longformer(operands, how, layout)
    return (out, tuple(rows)) if return_rows else out


def longformer_backward(dout, q, k, v, q_global, k_global, v_global, out, rows, *, window=256,
                        classes=None, dilation=None, causal=False, scale=None, dropout=0.0,
                        seed=None, layout="bhld", context=None):
    """Gradients of the six operands (None where there was none); `out` and `rows` come from
    longformer(..., return_rows=True) with the same arguments."""
    check_dropout(dropout, seed)
    refuse_watched("longformer_backward", dout, q, k, v, q_global, k_global, v_global, out)
    causal = _given.flag("longformer_backward: causal", causal)
    how = (window, dilation, causal, scale, dropout, seed or 0, classes, context)
    return _core.longformer_backward(dout, (q, k, v, q_global, k_global, v_global),
                                     (out, *_given.rows("longformer_backward", rows)), how, layout)
