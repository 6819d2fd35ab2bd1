"""Transformers' mask functions as patterns. What has no name stays a dense mask."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

import torch
from transformers import masking_utils

from rapt import _core

_ALL = 2**62


class PatternMask(NamedTuple):
    """Who sees whom, instead of a mask of numbers: one pattern for each batch item, or one for all;
    the first `keys` slots of the cache hold tokens."""

    patterns: List[_core.Pattern]
    keys: int

    def dense(self, queries: int) -> torch.Tensor:
        """bool [batch or 1, 1, queries, keys], for whoever wants attention weights."""
        seen = torch.zeros(len(self.patterns), 1, queries, self.keys, dtype=torch.bool)
        for item, pattern in enumerate(self.patterns):
            for query in range(queries):
                for begin, end in pattern.keys_of(query, queries, self.keys):
                    seen[item, 0, query, begin:end] = True
        return seen


def rapt_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
              mask_function=masking_utils.causal_mask_function, attention_mask=None, **kwargs):
    """A PatternMask if the mask function is made of parts with a name; else Transformers' own bool
    mask."""
    if not torch.compiler.is_compiling():
        # Full slots of the cache: those up to the newest query.
        aligned = int(q_offset) + int(q_length) - int(kv_offset)
        found = _patterns(mask_function, min(int(kv_length), aligned), int(kv_offset))
        if found is not None:
            keys = min(int(kv_length), aligned) if "causal" in str(found[0]) else int(kv_length)
            found = _with_padding(found, attention_mask, int(q_length), keys, int(kv_offset))
        if found is not None:
            return PatternMask(found, keys)
    kwargs.update(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
    return masking_utils.sdpa_mask(batch_size=batch_size, q_length=q_length, kv_length=kv_length,
                                   q_offset=q_offset, kv_offset=kv_offset,
                                   mask_function=mask_function, attention_mask=attention_mask,
                                   **kwargs)


def _patterns(function, keys, kv_offset) -> Optional[List[_core.Pattern]]:
    """[one for all] or [one for each item]; None if the function has no name."""
    if function is masking_utils.causal_mask_function:
        return [_core.causal()]
    if function is masking_utils.bidirectional_mask_function:
        return [_core.full()]
    name = function.__qualname__.partition(".")[0]
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    inside = dict(zip(function.__code__.co_freevars, cells))
    if name == "and_masks":
        return _all_of(inside["mask_functions"], keys, kv_offset)
    if name == "sliding_window_overlay":
        return [_core.window(inside["sliding_window"] - 1, _ALL)]
    if name == "sliding_window_bidirectional_overlay":
        return [_core.window(inside["sliding_window"], inside["sliding_window"])]
    if name == "packed_sequence_mask_function" and kv_offset == 0:
        return _packed(inside["packed_sequence_mask"], keys)
    return None


def _all_of(functions, *lengths):
    joined = [_core.full()]
    for function in functions:
        found = _patterns(function, *lengths)
        if found is None:
            return None
        joined = _pairwise(joined, found)
    return joined


def _pairwise(a, b):
    if len(a) == 1:
        return [a[0] & other for other in b]
    return [x & b[0 if len(b) == 1 else i] for i, x in enumerate(a)]


def _packed(numbers, keys):
    if numbers.shape[1] != keys:
        return None
    lengths = [torch.unique_consecutive(row, return_counts=True)[1].tolist() for row in numbers]
    return [_core.documents(x) for x in lengths]


def _with_padding(patterns, attention_mask, queries, keys, kv_offset):
    """Padding before and after the tokens of an item; with holes between them, None."""
    if attention_mask is None:
        return patterns
    real = attention_mask[:, kv_offset:kv_offset + keys].bool()
    if real.shape[1] != keys:
        return None
    if bool(real.all()):
        return patterns
    self_attention = "causal" in str(patterns[0]) or queries == keys
    padded = [_padded(_span(row), self_attention) for row in real]
    return None if any(p is None for p in padded) else _pairwise(patterns, padded)


def _padded(span, self_attention):
    if span is None or (span[0] and not self_attention):
        return None
    before, tokens, _ = span
    # Padding in front sees itself: no row is empty, and nobody reads it.
    return _core.keys(tokens) if not before else _core.documents([n for n in span if n])


def _span(row):
    """(before, tokens, after) if the tokens are one run."""
    values, counts = torch.unique_consecutive(row, return_counts=True)
    values, counts = values.tolist(), counts.tolist()
    if values.count(True) != 1:
        return None
    at = values.index(True)
    return (sum(counts[:at]), counts[at], sum(counts[at + 1:]))


def padding_mask(attention_mask):
    """bool [batch, tokens], None if nothing is padding."""
    if attention_mask is None or bool(attention_mask.bool().all()):
        return None
    return attention_mask.bool()


def item_patterns(attention_mask):
    """Of a padding mask [batch, keys]: None if nothing is padding, one pattern for each item if only
    the end is, [] if there is no such pattern."""
    real = padding_mask(attention_mask)
    if real is None:
        return None
    spans = [_span(row) for row in real]
    if any(span is None or span[0] for span in spans):
        return []
    return [_core.keys(span[1]) for span in spans]
