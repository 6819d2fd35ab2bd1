"""Transformers' mask functions as patterns. Functions that rapt does not know stay dense masks."""

from __future__ import annotations

import types
from typing import List, Optional

import torch
from transformers import masking_utils

from rapt import _core
from rapt._torch.modes import readable, traced
from rapt.integrations.transformers.pattern_mask import PatternMask

_ALL = 2**62


def rapt_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
              mask_function=masking_utils.causal_mask_function, attention_mask=None,
              dtype=torch.float32, **kwargs):
    """The mask of eager attention: a PatternMask if rapt knows every part of the mask function, else
    a dense mask. None only where eager attention has none and every query sees every key: elsewhere a
    model may add the mask, slice it or ask for its shape. Always dense if the call is traced, compiled
    or transformed: a pattern would be a constant of the graph, with the lengths and the padding of the
    example."""
    may_skip = kwargs.get("allow_is_bidirectional_skip", False)
    kwargs.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)

    def numbers():
        return masking_utils.eager_mask(
            batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
            kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
            dtype=dtype, **kwargs)

    if (torch.device(kwargs.get("device", "cpu")).type != "cpu"
            or not _known(attention_mask, q_length, kv_length, q_offset, kv_offset)):
        return numbers()
    # Offsets of a static cache are tensors that it changes in place.
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    lengths = _Lengths(int(q_length), int(kv_length), q_offset + int(q_length) - kv_offset,
                       kv_offset)
    found = _patterns(mask_function, lengths)
    keys = None if found is None else _aligned_keys(found, lengths)
    if keys is None:
        return numbers()
    padded = _with_padding(found, attention_mask, lengths.queries, keys, kv_offset)
    if padded is None:
        return numbers()
    if may_skip and padded is found and str(found[0]) == "full":
        return None
    return PatternMask(padded, keys, (int(batch_size), 1, lengths.queries, lengths.slots), dtype,
                       numbers, padded=padded is not found)


def _known(*given) -> bool:
    """Whether the values may decide something: the call is not recorded, and every tensor has values in
    memory (a fake one, or one on "meta", has none)."""
    return not traced() and all(readable(x) for x in given if isinstance(x, torch.Tensor))


class _Lengths:
    """`aligned` counts the slots up to the newest query; a static cache has empty ones after it."""

    def __init__(self, queries, slots, aligned, kv_offset):
        self.queries, self.slots, self.aligned = queries, slots, aligned
        self.kv_offset = kv_offset


def _aligned_keys(patterns, lengths) -> Optional[int]:
    """How many slots the patterns cover. A pattern puts the newest query at the last key; None if the
    query is elsewhere."""
    text = str(patterns[0])
    if "causal" in text:
        return lengths.aligned if lengths.aligned <= lengths.slots else None
    if text != "full" and lengths.aligned != lengths.slots:
        return None
    return lengths.slots


def _patterns(function, lengths) -> Optional[List[_core.Pattern]]:
    """[one for all] or [one for each item]; None if rapt does not know the function."""
    if function is masking_utils.causal_mask_function:
        return [_core.causal()]
    if function is masking_utils.bidirectional_mask_function:
        return [_core.full()]
    if (not isinstance(function, types.FunctionType)
            or function.__module__ != masking_utils.__name__):
        return None
    name = function.__qualname__.partition(".")[0]
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    inside = dict(zip(function.__code__.co_freevars, cells))
    if name == "and_masks":
        return _all_of(inside["mask_functions"], lengths)
    if name == "sliding_window_overlay":
        return [_core.window(inside["sliding_window"] - 1, _ALL)]
    if name == "sliding_window_bidirectional_overlay":
        return [_core.window(inside["sliding_window"], inside["sliding_window"])]
    if name == "packed_sequence_mask_function" and lengths.kv_offset == 0:
        return _packed(inside["packed_sequence_mask"], lengths.slots)
    if name == "remap_positions_for_packed_sequence":
        return _remapped(inside["mask_function"], lengths)
    if name == "chunked_overlay":
        return _chunked(inside["chunk_size"], inside["left_padding"], lengths)
    return None


def _all_of(functions, lengths):
    joined = [_core.full()]
    for function in functions:
        found = _patterns(function, lengths)
        if found is None:
            return None
        joined = _pairwise(joined, found)
    return joined


def _pairwise(a, b):
    if len(a) == 1:
        return [a[0] & other for other in b]
    return [x & b[0 if len(b) == 1 else i] for i, x in enumerate(a)]


def _packed(numbers, keys):
    if not readable(numbers) or numbers.shape[1] != keys:
        return None
    lengths = [torch.unique_consecutive(row, return_counts=True)[1].tolist() for row in numbers]
    return [_core.documents(x) for x in lengths]


def _remapped(function, lengths):
    """Positions count from the start of each packed sequence. Distances within one stay the same, which
    is enough for causal masks and windows; chunks begin elsewhere."""
    found = _patterns(function, lengths)
    return None if found is None or any("documents" in str(p) for p in found) else found


def _chunked(size, left_padding, lengths):
    """Chunks of `size` tokens that begin at the first token of each item."""
    def documents(padding):
        first = (padding - lengths.kv_offset) % size
        rest = max(0, lengths.aligned - first)
        sizes = [first, *[size] * (rest // size), rest % size]
        return _core.documents([n for n in sizes if n])

    if not readable(left_padding) or lengths.aligned > lengths.slots:
        return None
    starts = left_padding.tolist()
    return [documents(starts[0])] if len(set(starts)) == 1 else [documents(x) for x in starts]


def _with_padding(patterns, attention_mask, queries, keys, kv_offset):
    """The same list if there is no padding; None if an item has holes between its tokens."""
    if attention_mask is None:
        return patterns
    real = attention_mask[:, kv_offset:kv_offset + keys].bool()
    if real.shape[1] != keys:
        return None
    if bool(real.all()):
        return patterns
    spans = [_span(row) for row in real]
    if any(span is None for span in spans):
        return None
    return _pairwise(patterns, [_real_keys(span, queries) for span in spans])


def _real_keys(span, queries):
    """Every query sees the tokens, and none sees the padding around them."""
    before, tokens, after = span
    return (_core.documents([0, queries, 0], [before, tokens, after]) if before
            else _core.keys(tokens))


def _span(row):
    """(before, tokens, after) if the tokens are contiguous."""
    values, counts = torch.unique_consecutive(row, return_counts=True)
    values, counts = values.tolist(), counts.tolist()
    if values.count(True) != 1:
        return None
    at = values.index(True)
    return (sum(counts[:at]), counts[at], sum(counts[at + 1:]))


def padding_mask(attention_mask):
    """bool [batch, tokens], None if nothing is padding. In a trace never None: its example may have no
    padding and a later call some."""
    if attention_mask is None:
        return None
    real = attention_mask.bool()
    return None if readable(real) and bool(real.all()) else real


def item_patterns(attention_mask):
    """Of a padding mask [batch, keys]: None if nothing is padding, one pattern for each item if only
    the end is, [] if there is no such pattern."""
    if attention_mask is not None and not readable(attention_mask):
        raise ValueError("accelerate: an attention_mask in a trace, a transform or without numbers, "
                         "from which Reformer's hashed attention makes a pattern for each item; expected "
                         "no attention_mask or a plain eager call; trace the model before accelerate()")
    real = padding_mask(attention_mask)
    if real is None:
        return None
    spans = [_span(row) for row in real]
    if any(span is None or span[0] for span in spans):
        return []
    return [_core.keys(span[1]) for span in spans]
