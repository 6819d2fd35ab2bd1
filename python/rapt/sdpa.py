"""PyTorch's scaled_dot_product_attention, in its words."""

from __future__ import annotations

import sys

from rapt import _core, _given
from rapt._shapes import check_operand, four_axes, mask_axes, nonempty
from rapt.attention import attend, torch_side
from rapt.bias import dense_bias

# A mask in more runs than this for each query is no pattern worth having.
_MOST_RUNS = 16


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention: [..., heads, tokens, dim], causal from the
    top left corner, attn_mask True = keep or added or a CausalBias, rows without a key are zeros. Axes
    before the tokens broadcast. A mask together with is_causal is an error. numpy arrays are taken as
    well.

    >>> import numpy as np
    >>> x = np.ones((2, 4, 7, 8), np.float32)
    >>> scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (2, 4, 7, 8)
    """
    where = "scaled_dot_product_attention"
    is_causal = _given.flag(f"{where}: is_causal", is_causal)
    enable_gqa = _given.flag(f"{where}: enable_gqa", enable_gqa)
    if attn_mask is not None and is_causal:
        raise ValueError(f"{where}: attn_mask and is_causal=True are given, expected one of them")
    pattern, bias, seen = "causal(first)" if is_causal else None, None, None
    shape = getattr(query, "shape", ())
    if (attn_mask is None and len(shape) == 4 and shape[3] and shape == getattr(key, "shape", None)
            and shape == getattr(value, "shape", None)):  # the usual call, as it is
        return attend(query, key, value, pattern, scale=scale, dropout=dropout_p)
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_operand(where, name, x)
    q, k, v, lead = four_axes(where, query, key, value, enable_gqa)
    if attn_mask is not None:
        pattern, bias, seen = _mask(attn_mask, q, k, lead)
    out = attend(*nonempty(q, k, v), pattern, scale=scale, bias=bias, dropout=dropout_p)
    if seen is not None:
        out = _zero_rows(out, seen)
    if v.shape[-1] == 0:
        out = out[..., :0]
    return out if len(lead) == 2 else out.reshape(*lead, *out.shape[-2:])


def _mask(mask, q, k, lead):
    """(pattern, bias, rows that see something or None if all do)."""
    pattern = _causal_bias(mask, q, k)
    if pattern is not None:
        return pattern, None, None
    if not hasattr(mask, "ndim"):
        raise TypeError(f"scaled_dot_product_attention: attn_mask is a {type(mask).__name__}, expected an array")
    side = torch_side(q)
    known = side is None or side.readable(q)
    boolean = str(mask.dtype).endswith("bool")
    mask = mask_axes("scaled_dot_product_attention", mask, lead, q.shape[2], k.shape[2], known)
    if boolean and known:
        pattern = _as_pattern(mask, q.shape[2], k.shape[2])
        if pattern is not None:
            return pattern, None, None
    values = added(mask) if boolean else mask
    return (None, *open_empty_rows(values, getattr(mask, "requires_grad", False)))


def _causal_bias(mask, q, k):
    """The pattern of a torch.nn.attention.bias.CausalBias, whose memory holds no mask."""
    module = sys.modules.get("torch.nn.attention.bias")
    if module is None or not isinstance(mask, module.CausalBias):
        return None
    given, expected = (mask.seq_len_q, mask.seq_len_kv), (q.shape[2], k.shape[2])
    if given != expected:
        raise ValueError(f"scaled_dot_product_attention: attn_mask is causal for {given[0]} queries and {given[1]} "
                         f"keys, expected {expected[0]} and {expected[1]}")
    return "causal(first)" if mask.variant == module.CausalVariant.UPPER_LEFT else "causal"


def _as_pattern(mask, queries, keys):
    """Ranges cost less than numbers where they are few."""
    if tuple(mask.shape) != (1, 1, queries, keys):
        return None
    mask = mask.reshape(queries, keys)
    runs = (mask[:, 1:] != mask[:, :-1]).sum()
    return _core.mask(mask) if runs <= 2 * _MOST_RUNS * queries else None


def added(mask):
    """0 where a bool mask keeps, -inf where it does not."""
    side = torch_side(mask)
    if side is not None:
        return side.added(mask)
    import numpy

    return numpy.where(mask, numpy.float32(0), numpy.float32(-numpy.inf))


def open_empty_rows(values, learned):
    """A row of -inf alone would be NaN; it is opened here and its output made zero afterwards."""
    seen = (values != -float("inf")).any(-1)
    side = torch_side(values)
    if side is not None:
        if side.known_true(seen.all()):
            return dense_bias(values, fixed=not learned), None
        return dense_bias(values.masked_fill(~seen[..., None], 0.0), fixed=not learned), seen
    if seen.all():
        return dense_bias(values, fixed=True), None
    opened = values.copy()
    opened[~seen] = 0
    return dense_bias(opened, fixed=True), seen


def _zero_rows(out, seen):
    if torch_side(out) is not None:
        return out.masked_fill(~seen[..., None], 0.0)
    import numpy

    return numpy.where(seen[..., None], out, out.dtype.type(0))
