"""PyTorch's scaled_dot_product_attention, in its words."""

from __future__ import annotations

from rapt import _core, _given
from rapt.attention import attend, torch_side
from rapt.bias import dense_bias

# A mask in more runs than this for each query is no pattern worth having.
_MOST_RUNS = 16


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False,
                                 scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention: [..., heads, tokens, dim], causal from the
    top left corner, attn_mask True = keep or added, rows without a key are zeros. A mask together
    with is_causal is an error. numpy arrays are taken as well.

    >>> import numpy as np
    >>> x = np.ones((2, 4, 7, 8), np.float32)
    >>> scaled_dot_product_attention(x, x, x, is_causal=True).shape
    (2, 4, 7, 8)
    """
    is_causal = _given.flag("scaled_dot_product_attention: is_causal", is_causal)
    enable_gqa = _given.flag("scaled_dot_product_attention: enable_gqa", enable_gqa)
    if attn_mask is not None and is_causal:
        raise ValueError("scaled_dot_product_attention: attn_mask and is_causal=True are given, "
                         "expected one of them")
    if query.ndim < 2:
        raise ValueError(f"scaled_dot_product_attention: query has {query.ndim} axes, expected at "
                         "least 2: [..., tokens, dim]")
    q, k, v = (_four_axes(x) for x in (query, key, value))
    if q.shape[1] != k.shape[1] and not enable_gqa:
        raise ValueError(f"scaled_dot_product_attention: query has {q.shape[1]} heads and key "
                         f"{k.shape[1]}; enable_gqa=True lets key heads be shared")
    pattern, bias, seen = "causal(first)" if is_causal else None, None, None
    if attn_mask is not None:
        pattern, bias, seen = _mask(attn_mask, query)
    out = attend(q, k, v, pattern, scale=scale, bias=bias, dropout=dropout_p)
    if seen is not None:
        out = _zero_rows(out, seen)
    return out.reshape(*query.shape[:-1], value.shape[-1])


def _four_axes(x):
    """[..., heads, tokens, dim] with whatever comes before in one axis."""
    if x.ndim == 4:
        return x
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 2:
        return x[None, None]
    return x.reshape(-1, *x.shape[-3:])


def _mask(mask, query):
    """(pattern, bias, rows that see something or None if all do)."""
    boolean = str(mask.dtype).endswith("bool")
    if boolean and all(size == 1 for size in mask.shape[:-2]):
        flat = mask.reshape(mask.shape[-2:])
        pattern = _as_pattern(flat, query)
        if pattern is not None:
            return pattern, None, None
    mask = _four_axes_of_mask(mask, query)
    values = _added(mask, query) if boolean else mask
    return (None, *_open_empty_rows(values, getattr(mask, "requires_grad", False)))


def _as_pattern(mask, query):
    """Ranges cost less than numbers where they are few; the compiler cannot ask how many."""
    side = torch_side(query)
    if (side is not None and side.watched(query)) or mask.shape[0] != query.shape[-2]:
        return None
    mask = mask.detach() if hasattr(mask, "detach") else mask
    runs = (mask[:, 1:] != mask[:, :-1]).sum()
    return _core.mask(mask) if runs <= 2 * _MOST_RUNS * mask.shape[0] else None


def _four_axes_of_mask(mask, query):
    """Broadcast like [..., heads, queries, keys], axes of size 1 kept."""
    if query.ndim == 3 and mask.ndim == 3:
        return mask[:, None]
    if query.ndim <= 4:
        return mask.reshape(*(1,) * (4 - mask.ndim), *mask.shape) if mask.ndim < 4 else mask
    side = torch_side(query)
    shape = (*query.shape[:-2], *mask.shape[-2:])
    if side is not None:
        return mask.expand(shape).reshape(-1, *shape[-3:])
    import numpy

    return numpy.broadcast_to(mask, shape).reshape(-1, *shape[-3:])


def _added(mask, query):
    """0 where a bool mask keeps, -inf where it does not."""
    side = torch_side(query)
    if side is not None:
        return side.added(mask)
    import numpy

    return numpy.where(mask, numpy.float32(0), numpy.float32(-numpy.inf))


def _open_empty_rows(values, learned):
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
