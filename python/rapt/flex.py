"""FlexAttention's names: block masks from functions, and the score functions that have a name."""

from __future__ import annotations

import sys
from typing import Any, Callable, List, NamedTuple, Optional, Union

from rapt import _core, _given
from rapt.attention import attend, torch_side
from rapt.bias import Bias
from rapt.bias import alibi as _alibi
from rapt.bias import t5_bias as _t5_bias

_ROWS_AT_A_TIME = 256


class Mask:
    """A mask function with a name: rapt knows its pattern and need not evaluate it."""

    def __init__(self, pattern):
        self.pattern = _core.Pattern(pattern)

    def __repr__(self) -> str:
        return f"Mask(\"{self.pattern}\")"


#: Query i sees keys up to i.
causal = Mask("causal(first)")
#: Everyone sees everyone.
noop_mask = Mask("full")


def sliding_window(left: int, right: int = 0) -> Mask:
    """Query i sees keys i - left to i + right."""
    return Mask(_core.window(left, right, "first"))


def prefix_lm(n: int) -> Mask:
    """Causal, and the first n positions see each other."""
    return Mask(_core.causal("first") | _core.prefix(n))


def document_mask(lengths) -> Mask:
    """Packed sequences: each position sees its own document."""
    return Mask(_core.documents(lengths))


def and_masks(*masks):
    """What all of them allow."""
    return _joined(masks, lambda a, b: a & b)


def or_masks(*masks):
    """What any of them allows."""
    return _joined(masks, lambda a, b: a | b)


def _joined(masks, join):
    if all(isinstance(m, Mask) for m in masks):
        pattern = masks[0].pattern
        for m in masks[1:]:
            pattern = join(pattern, m.pattern)
        return Mask(pattern)

    def mask_mod(b, h, q_idx, kv_idx):
        found = [_evaluate(m, b, h, q_idx, kv_idx) for m in masks]
        result = found[0]
        for other in found[1:]:
            result = join(result, other)
        return result

    return mask_mod


def _evaluate(mask_mod, b, h, q_idx, kv_idx):
    """A named mask among functions is read off its ranges."""
    if not isinstance(mask_mod, Mask):
        return mask_mod(b, h, q_idx, kv_idx)
    xp = _arrays()
    queries, keys = int(q_idx[-1, 0]) + 1, kv_idx.shape[1]
    seen = xp.zeros((q_idx.shape[0], keys), dtype=xp.bool if hasattr(xp, "bool") else bool)
    for row in range(q_idx.shape[0]):
        at = int(q_idx[row, 0])
        for begin, end in mask_mod.pattern.keys_of(at, max(queries, keys), max(queries, keys)):
            seen[row, begin:end] = True
    return seen


class ScoreMod(NamedTuple):
    """A score function with a name: softcap first, then what is added."""

    softcap: float = 0.0
    bias: Optional[Bias] = None

    def then(self, other: "ScoreMod") -> "ScoreMod":
        if other.softcap and (self.softcap or self.bias is not None):
            raise ValueError("flex_attention: a softcap after another score mod is given, expected "
                             "it first")
        joined = other.bias if self.bias is None else \
            self.bias if other.bias is None else self.bias + other.bias
        return ScoreMod(self.softcap or other.softcap, joined)


def softcap(cap: float) -> ScoreMod:
    """cap * tanh(score / cap)."""
    return ScoreMod(softcap=cap)


def alibi(slopes) -> ScoreMod:
    """score - slope[head] * |q_idx - kv_idx|; a number of heads stands for the published slopes."""
    return ScoreMod(bias=_alibi(slopes))


def relative_bias(table, max_distance: int = 128, direction: str = "both") -> ScoreMod:
    """score + table[T5 bucket, head]."""
    return ScoreMod(bias=_t5_bias(table, max_distance, direction))


class AuxOutput(NamedTuple):
    """What return_aux asked for."""

    lse: Any = None
    max_scores: Any = None


class BlockMask(NamedTuple):
    """Patterns [batch or 1][heads or 1] for fixed lengths."""

    patterns: List[List[_core.Pattern]]
    shape: tuple  # (B, H, Q_LEN, KV_LEN)

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape})"


def create_block_mask(mask_mod: Union[Mask, Callable], B=None, H=None, Q_LEN=None, KV_LEN=None,
                      device=None, BLOCK_SIZE=128) -> BlockMask:
    """Evaluates mask_mod(b, h, q_idx, kv_idx) once, on arrays of indices that broadcast, and keeps
    the ranges of keys that each query sees. None for B or H: alike for all. A Mask of this module,
    a Pattern or its text is taken as it is. BLOCK_SIZE has no meaning here: tiles are 64 x 64.

    >>> import numpy as np
    >>> mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 4), None, None, 16, 16)
    >>> x = np.ones((1, 2, 16, 8), np.float32)
    >>> flex_attention(x, x, x, block_mask=mask).shape
    (1, 2, 16, 8)
    """
    if device is not None and str(device).split(":")[0] != "cpu":
        raise ValueError(f"create_block_mask: device is {device}, expected the CPU")
    if Q_LEN is None or KV_LEN is None:
        raise ValueError("create_block_mask: Q_LEN and KV_LEN are expected")
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    if isinstance(mask_mod, (Mask, _core.Pattern, str)):
        pattern = mask_mod.pattern if isinstance(mask_mod, Mask) else _core.Pattern(mask_mod)
        pattern.check(Q_LEN, KV_LEN)
        return BlockMask([[pattern]], shape)
    patterns = [[_pattern_of(mask_mod, b, h, Q_LEN, KV_LEN) for h in range(shape[1])]
                for b in range(shape[0])]
    return BlockMask(_merged(patterns), shape)


def _merged(patterns):
    first = patterns[0][0]
    return [[first]] if all(p == first for row in patterns for p in row) else patterns


def _arrays():
    """The library whose indices a mask function gets."""
    module = sys.modules.get("torch")
    if module is None:
        import numpy as module
    return module


def _pattern_of(mask_mod, b, h, queries, keys):
    xp = _arrays()
    item, head, kv_idx = xp.asarray(b), xp.asarray(h), xp.arange(keys)[None, :]
    seen = xp.zeros((queries, keys), dtype=xp.bool if hasattr(xp, "bool") else bool)
    for begin in range(0, queries, _ROWS_AT_A_TIME):
        end = min(begin + _ROWS_AT_A_TIME, queries)
        seen[begin:end] = mask_mod(item, head, xp.arange(begin, end)[:, None], kv_idx)
    return _core.mask(seen)


def _score(score_mod) -> ScoreMod:
    if score_mod is None:
        return ScoreMod()
    if isinstance(score_mod, ScoreMod):
        return score_mod
    raise ValueError("flex_attention: an arbitrary score_mod is given, expected one with a name: "
                     "rapt.flex.softcap, alibi, relative_bias, joined with .then()")


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None,
                   enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):
    """torch.nn.attention.flex_attention with gradients on CPUs. score_mod: None or a named one of
    rapt.flex; block_mask: of rapt.create_block_mask."""
    enable_gqa = _given.flag("flex_attention: enable_gqa", enable_gqa)
    return_lse = _given.flag("flex_attention: return_lse", return_lse)
    if kernel_options:
        raise ValueError("flex_attention: kernel_options are given, expected none on CPUs")
    if return_aux is not None and getattr(return_aux, "max_scores", False):
        raise ValueError("flex_attention: max_scores are asked for, expected lse only")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"flex_attention: query has {query.shape[1]} heads and key {key.shape[1]}; "
                         "enable_gqa=True lets key heads be shared")
    score = _score(score_mod)
    how = {"scale": scale, "softcap": score.softcap, "bias": score.bias, "return_lse": True}
    if block_mask is None:
        out, lse = attend(query, key, value, **how)
    else:
        _check_shape(block_mask, query, key)
        out, lse = _each_pattern(query, key, value, block_mask.patterns, how)
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None)
    return (out, lse) if return_lse else out


def _check_shape(block_mask, query, key):
    if not isinstance(block_mask, BlockMask):
        raise TypeError(f"flex_attention: block_mask is a {type(block_mask).__name__}, expected one "
                        "of rapt.create_block_mask")
    batch, heads, queries, keys = block_mask.shape
    given = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    fits = batch in (1, given[0]) and heads in (1, given[1]) and (queries, keys) == given[2:]
    if not fits:
        raise ValueError(f"flex_attention: block_mask has shape {block_mask.shape}, expected to "
                         f"broadcast to {given}")


def _each_pattern(q, k, v, patterns, how):
    """One call for each pattern that differs; they share nothing but the arrays."""
    if len(patterns) == 1 and len(patterns[0]) == 1:
        return attend(q, k, v, patterns[0][0], **how)
    if how["bias"] is not None and len(patterns[0]) > 1:
        raise ValueError("flex_attention: a bias with masks that differ between heads is given, "
                         "expected masks alike for all heads")
    xp = sys.modules["torch"] if torch_side(q) else sys.modules["numpy"]
    group = q.shape[1] // k.shape[1]
    items = []
    for b in range(q.shape[0]):
        row = patterns[b if len(patterns) > 1 else 0]
        if len(row) == 1:
            items.append(attend(q[b:b + 1], k[b:b + 1], v[b:b + 1], row[0], **how))
            continue
        heads = [attend(q[b:b + 1, h:h + 1], k[b:b + 1, h // group:h // group + 1],
                        v[b:b + 1, h // group:h // group + 1], row[h], **how)
                 for h in range(q.shape[1])]
        items.append(tuple(xp.concatenate(part, 1) for part in zip(*heads)))
    return tuple(xp.concatenate(part, 0) for part in zip(*items))
