"""PyTorch's scaled_dot_product_attention, with its names."""

from __future__ import annotations

import sys
from typing import Any, Optional, Tuple

from rapt import _core, _given
from rapt._shapes import check_operand, four_axes, mask_axes, nonempty
from rapt._tensors import torch_functions
from rapt.attention.attend import attend
from rapt.attention.bias import Bias, dense_bias
from rapt.typing import Array, ArrayLike

# A mask with more runs of keys than this for each query is faster as numbers than as a pattern.
_MOST_RUNS = 16


def scaled_dot_product_attention(query: ArrayLike, key: ArrayLike, value: ArrayLike,
                                 attn_mask: Optional[ArrayLike] = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Array:
    """torch.nn.functional.scaled_dot_product_attention: [..., heads, tokens, dim], causal from the top left
    corner. attn_mask is bool (True = keep), numbers that are added, or a CausalBias; rows without a key are
    zeros. Axes before the tokens broadcast. A mask together with is_causal is an error. Takes numpy arrays
    too.

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
    pattern: Any = "causal(first)" if is_causal else None
    bias, seen = None, None
    shape: Any = getattr(query, "shape", ())
    if (attn_mask is None and len(shape) == 4 and shape[3] and shape == getattr(key, "shape", None)
            and shape == getattr(value, "shape", None)):  # the usual call
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


def _mask(mask: Any, q: Any, k: Any, lead: Any) -> Tuple[Any, Optional[Bias], Any]:
    """(pattern, bias, rows that see a key or None if all do)."""
    pattern: Any = _causal_bias(mask, q, k)
    if pattern is not None:
        return pattern, None, None
    if not hasattr(mask, "ndim"):
        raise TypeError(f"scaled_dot_product_attention: attn_mask is a {type(mask).__name__}, expected an array")
    functions = torch_functions(q)
    known = functions is None or functions.readable(q)
    boolean = str(mask.dtype).endswith("bool")
    mask = mask_axes("scaled_dot_product_attention", mask, lead, q.shape[2], k.shape[2], known)
    if boolean and known:
        pattern = _as_pattern(mask, q.shape[2], k.shape[2])
        if pattern is not None:
            return pattern, None, None
    values = added(mask) if boolean else mask
    return (None, *open_empty_rows(values, getattr(mask, "requires_grad", False)))


def _causal_bias(mask: Any, q: Any, k: Any) -> Optional[str]:
    """The pattern of a torch.nn.attention.bias.CausalBias, whose memory holds no mask."""
    module = sys.modules.get("torch.nn.attention.bias")
    if module is None or not isinstance(mask, module.CausalBias):
        return None
    given, expected = (mask.seq_len_q, mask.seq_len_kv), (q.shape[2], k.shape[2])
    if given != expected:
        raise ValueError(f"scaled_dot_product_attention: attn_mask is causal for {given[0]} queries and {given[1]} "
                         f"keys, expected {expected[0]} and {expected[1]}")
    return "causal(first)" if mask.variant == module.CausalVariant.UPPER_LEFT else "causal"


def _as_pattern(mask: Any, queries: int, keys: int) -> Optional[_core.Pattern]:
    """Ranges are faster than numbers if they are few."""
    if tuple(mask.shape) != (1, 1, queries, keys):
        return None
    mask = mask.reshape(queries, keys)
    runs = (mask[:, 1:] != mask[:, :-1]).sum()
    return _core.mask(mask) if runs <= 2 * _MOST_RUNS * queries else None


def added(mask: Any) -> Any:
    """0 where a bool mask keeps, -inf where it does not."""
    functions = torch_functions(mask)
    if functions is not None:
        return functions.added(mask)
    import numpy

    return numpy.where(mask, numpy.float32(0), numpy.float32(-numpy.inf))


def open_empty_rows(values: Any, learned: bool) -> Tuple[Bias, Any]:
    """(bias, rows that see a key or None if all do). A row of only -inf would give NaN: it is set to 0 here
    and its output to zeros afterwards."""
    seen = (values != -float("inf")).any(-1)
    functions = torch_functions(values)
    if functions is not None:
        if functions.known_true(seen.all()):
            return dense_bias(values, fixed=not learned), None
        return dense_bias(values.masked_fill(~seen[..., None], 0.0), fixed=not learned), seen
    if seen.all():
        return dense_bias(values, fixed=True), None
    opened = values.copy()
    opened[~seen] = 0
    return dense_bias(opened, fixed=True), seen


def _zero_rows(out: Any, seen: Any) -> Any:
    if torch_functions(out) is not None:
        return out.masked_fill(~seen[..., None], 0.0)
    import numpy

    return numpy.where(seen[..., None], out, out.dtype.type(0))
