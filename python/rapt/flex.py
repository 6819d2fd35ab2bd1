"""FlexAttention with its names: block masks from any mask function, and score functions that rapt knows."""

from __future__ import annotations

import operator
import sys
from functools import partial, reduce
from typing import Any, Callable, Dict, List, Literal, NamedTuple, Optional, Tuple, Union

from rapt import _core, _given, _tensors
from rapt._shapes import check_operand, four_axes, library, nonempty
from rapt._tensors import torch_functions
from rapt.attention.attend import attend
from rapt.attention.bias import Bias
from rapt.attention.bias import alibi as _alibi
from rapt.attention.bias import t5_bias as _t5_bias
from rapt.attention.patterns import TracedPattern, check_lengths
from rapt.sdpa import added as _added
from rapt.sdpa import open_empty_rows
from rapt.typing import Array, ArrayLike, Floats, Integers

#: mask_mod(b, h, q_idx, kv_idx), whose arguments are indices of PyTorch or numpy.
MaskFunction = Callable[[Any, Any, Any, Any], Any]

_ROWS_AT_A_TIME = 256


class Mask:
    """A mask function whose pattern rapt knows without evaluating it. It can be called like any other,
    mask(b, h, q_idx, kv_idx), inside a function for instance."""

    def __init__(self, pattern: Union[_core.Pattern, str], rule: Optional[MaskFunction] = None) -> None:
        self.pattern = _core.Pattern(pattern)
        self._rule = rule

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if self._rule is None:
            raise ValueError(f"{self!r} is a pattern without a function; join it with and_masks or or_masks")
        return self._rule(b, h, q_idx, kv_idx)

    def __repr__(self) -> str:
        return f"Mask(\"{self.pattern}\")"


def _is_causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def _is_anything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx >= 0) & (kv_idx >= 0)


def _is_within(left: int, right: int, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (kv_idx >= q_idx - left) & (kv_idx <= q_idx + right)


def _is_prefix_lm(n: int, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx >= kv_idx) | ((q_idx < n) & (kv_idx < n))


def _is_same_document(documents: List[int], b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    table = library(q_idx, kv_idx).asarray(documents)
    return table[q_idx] == table[kv_idx]


#: Query i sees keys up to i.
causal = Mask("causal(first)", _is_causal)
#: Every query sees every key.
noop_mask = Mask("full", _is_anything)


def sliding_window(left: int, right: int = 0) -> Mask:
    """Query i sees keys i - left to i + right."""
    return Mask(_core.window(left, right, "first"), partial(_is_within, left, right))


def prefix_lm(n: int) -> Mask:
    """Causal, and the first n positions see each other."""
    return Mask(_core.causal("first") | _core.prefix(n), partial(_is_prefix_lm, n))


def document_mask(lengths: Integers) -> Mask:
    """Packed sequences: each position sees its own document."""
    numbers = _given.list_of("document_mask: lengths", lengths, "a list of numbers")
    documents = [i for i, length in enumerate(numbers) for _ in range(int(length))]
    return Mask(_core.documents(lengths), partial(_is_same_document, documents))


def and_masks(*masks: MaskFunction) -> MaskFunction:
    """Pairs that all of them allow."""
    return _joined("and_masks", masks, operator.and_)


def or_masks(*masks: MaskFunction) -> MaskFunction:
    """Pairs that any of them allows."""
    return _joined("or_masks", masks, operator.or_)


class _Joined:
    """Mask functions joined by & or |."""

    def __init__(self, masks: Tuple[MaskFunction, ...], join: Callable[[Any, Any], Any]) -> None:
        self.masks, self.join = masks, join

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return reduce(self.join, [mask(b, h, q_idx, kv_idx) for mask in self.masks])


def _joined(where: str, masks: Tuple[Any, ...], join: Callable[[Any, Any], Any]) -> MaskFunction:
    if not masks or not all(callable(mask) for mask in masks):
        raise TypeError(f"{where}: the masks are {_given.shown(masks)}, expected functions (b, h, q_idx, kv_idx), "
                        "at least one")
    if all(isinstance(mask, Mask) for mask in masks):
        return Mask(reduce(join, [mask.pattern for mask in masks]), _Joined(masks, join))
    return _Joined(masks, join)


class ScoreMod(NamedTuple):
    """A score function that rapt knows: a softcap, then what is added."""

    softcap: Optional[float] = None
    bias: Optional[Bias] = None

    def then(self, other: ScoreMod) -> ScoreMod:
        """This one, then another."""
        if other.softcap is not None and (self.softcap is not None or self.bias is not None):
            raise ValueError("flex_attention: a softcap after another score mod is given, expected "
                             "it first")
        joined = other.bias if self.bias is None else \
            self.bias if other.bias is None else self.bias + other.bias
        return ScoreMod(other.softcap if self.softcap is None else self.softcap, joined)


def softcap(cap: float) -> ScoreMod:
    """cap * tanh(score / cap)."""
    return ScoreMod(softcap=cap)


def alibi(slopes: Union[int, Floats]) -> ScoreMod:
    """score - slope[head] * |q_idx - kv_idx|; a number of heads means the published slopes."""
    return ScoreMod(bias=_alibi(slopes))


def relative_bias(table: ArrayLike, max_distance: int = 128,
                  direction: Literal["both", "past"] = "both") -> ScoreMod:
    """score + table[T5 bucket, head]."""
    return ScoreMod(bias=_t5_bias(table, max_distance, direction))


class AuxOutput(NamedTuple):
    """What return_aux asked for."""

    lse: Optional[Array] = None
    max_scores: Optional[Array] = None


class BlockMask(NamedTuple):
    """Patterns [batch or 1][heads or 1] for fixed lengths. While a graph is recorded, tensors have no values,
    and the mask stays an array [batch or 1, heads or 1, queries, keys]."""

    patterns: Optional[List[List[Any]]]
    shape: Tuple[int, int, int, int]  # (B, H, Q_LEN, KV_LEN)
    mask: Optional[Array] = None

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape})"


def create_block_mask(mask_mod: Union[Mask, MaskFunction, _core.Pattern, str], B: Optional[int] = None,
                      H: Optional[int] = None, Q_LEN: Optional[int] = None, KV_LEN: Optional[int] = None,
                      device: Any = None, BLOCK_SIZE: Any = 128) -> BlockMask:
    """Evaluates mask_mod(b, h, q_idx, kv_idx) once and keeps the ranges of keys that each query sees. As in
    PyTorch the function gets one index of each kind and returns a bool (it runs under torch.vmap); without
    PyTorch the indices are numpy arrays that broadcast. None for B or H: the same for all. A Mask of this
    module, a Pattern or its text needs no evaluation. BLOCK_SIZE is ignored: tiles are 64 x 64.

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
    if isinstance(mask_mod, (Mask, _core.Pattern, TracedPattern, str)):
        pattern: Any = mask_mod.pattern if isinstance(mask_mod, Mask) else mask_mod
        check_lengths(pattern, Q_LEN, KV_LEN)
        return BlockMask([[pattern]], shape)
    if not callable(mask_mod):
        raise TypeError(f"create_block_mask: mask_mod is a {type(mask_mod).__name__}, expected a function "
                        "(b, h, q_idx, kv_idx), a Mask, a Pattern or its text")
    if _traced():
        return BlockMask(None, shape, _traced_mask(mask_mod, shape))
    patterns = [[_pattern_of(mask_mod, b, h, Q_LEN, KV_LEN) for h in range(shape[1])]
                for b in range(shape[0])]
    return BlockMask(_merged(patterns), shape)


def _traced() -> bool:
    return sys.modules.get("torch") is not None and bool(_tensors.load_functions().traced())


def _merged(patterns: List[List[Any]]) -> List[List[Any]]:
    first = patterns[0][0]
    return [[first]] if all(p == first for row in patterns for p in row) else patterns


def _arrays() -> Any:
    """The library whose indices a mask function gets."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return torch
    import numpy

    return numpy


def _pattern_of(mask_mod: Any, b: int, h: int, queries: int, keys: int) -> Any:
    if isinstance(mask_mod, Mask):
        return mask_mod.pattern
    if isinstance(mask_mod, _Joined):
        return reduce(mask_mod.join, [_pattern_of(mask, b, h, queries, keys) for mask in mask_mod.masks])
    xp = _arrays()
    seen = xp.zeros((queries, keys), dtype=xp.bool if hasattr(xp, "bool") else bool)
    for begin in range(0, queries, _ROWS_AT_A_TIME):
        end = min(begin + _ROWS_AT_A_TIME, queries)
        seen[begin:end] = xp.asarray(_evaluated(mask_mod, b, h, (begin, end), keys))
    return _core.mask(seen)


def _evaluated(mask_mod: MaskFunction, b: int, h: int, rows: Tuple[int, int], keys: int) -> Any:
    """Booleans [rows, keys]. A function over numpy arrays may run where PyTorch is loaded as well: it
    cannot take PyTorch's indices, and gets numpy's."""
    if sys.modules.get("torch") is None:
        return _by_numpy(mask_mod, b, h, rows, keys)
    try:
        return _by_vmap(mask_mod, b, h, rows, keys)
    except _WrongMask:
        raise
    except Exception as error:
        try:
            return _by_numpy(mask_mod, b, h, rows, keys)
        except _WrongMask:
            raise
        except Exception:
            raise error from None


class _WrongMask(ValueError):
    pass


def _check_result(seen: Any, shapes: List[Tuple[int, int]]) -> None:
    if getattr(seen, "ndim", 0) == 2 and seen.shape in shapes and str(seen.dtype).endswith("bool"):
        return
    raise _WrongMask(f"create_block_mask: mask_mod gives {getattr(seen, 'dtype', type(seen).__name__)} of shape "
                     f"{list(getattr(seen, 'shape', ()))} for {shapes[0][0]} queries and {shapes[0][1]} keys, expected "
                     "one bool for each pair")


def _by_vmap(mask_mod: MaskFunction, b: int, h: int, rows: Tuple[int, int], keys: int) -> Any:
    torch = sys.modules["torch"]
    each = torch.vmap(torch.vmap(mask_mod, (None, None, None, 0)), (None, None, 0, None))
    seen = each(torch.tensor(b), torch.tensor(h), torch.arange(*rows), torch.arange(keys))
    _check_result(seen, [(rows[1] - rows[0], keys)])
    return seen


def _by_numpy(mask_mod: MaskFunction, b: int, h: int, rows: Tuple[int, int], keys: int) -> Any:
    import numpy

    seen = mask_mod(numpy.asarray(b), numpy.asarray(h), numpy.arange(*rows)[:, None], numpy.arange(keys)[None, :])
    count = rows[1] - rows[0]
    _check_result(seen, [(count, keys), (count, 1), (1, keys)])
    return numpy.broadcast_to(seen, (count, keys)).copy()


def _traced_mask(mask_mod: MaskFunction, shape: Tuple[int, ...]) -> Any:
    """Booleans [batch, heads, queries, keys], as operations of PyTorch."""
    torch = sys.modules["torch"]
    each: Any = mask_mod
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        each = torch.vmap(each, dims)
    return each(*(torch.arange(size) for size in shape))


def _score(score_mod: Optional[ScoreMod]) -> ScoreMod:
    if score_mod is None:
        return ScoreMod()
    if isinstance(score_mod, ScoreMod):
        return score_mod
    raise ValueError("flex_attention: an arbitrary score_mod is given, expected one of rapt.flex: "
                     "softcap, alibi, relative_bias, joined with .then()")


def flex_attention(query: Array, key: Array, value: Array, score_mod: Optional[ScoreMod] = None,
                   block_mask: Optional[BlockMask] = None, scale: Optional[float] = None, enable_gqa: bool = False,
                   return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None) -> Any:
    """torch.nn.attention.flex_attention with gradients on CPUs. score_mod: None or one of rapt.flex;
    block_mask: from rapt.create_block_mask."""
    enable_gqa = _given.flag("flex_attention: enable_gqa", enable_gqa)
    return_lse = _given.flag("flex_attention: return_lse", return_lse)
    if kernel_options:
        raise ValueError("flex_attention: kernel_options are given, expected none on CPUs")
    if return_aux is not None and not hasattr(return_aux, "lse"):
        raise TypeError(f"flex_attention: return_aux is {_given.said(return_aux)}, expected None or an AuxRequest")
    if return_aux is not None and getattr(return_aux, "max_scores", False):
        raise ValueError("flex_attention: max_scores are asked for, expected lse only")
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_operand("flex_attention", name, x)
        if x.ndim != 4:
            raise ValueError(f"flex_attention: {name} has {x.ndim} axes, expected 4: [batch, heads, tokens, dim]")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"flex_attention: query has {query.shape[1]} heads and key {key.shape[1]}; "
                         "enable_gqa=True lets key heads be shared")
    q, k, v, _ = four_axes("flex_attention", query, key, value, enable_gqa)
    q, k, v = nonempty(q, k, v)
    score = _score(score_mod)
    how: Dict[str, Any] = {"scale": scale, "softcap": score.softcap, "bias": score.bias, "return_lse": True}
    if block_mask is None:
        out, lse = attend(q, k, v, **how)
    else:
        _check_shape(block_mask, q, k)
        out, lse = (_added_mask(q, k, v, block_mask.mask, how) if block_mask.patterns is None else
                    _each_pattern(q, k, v, block_mask.patterns, how))
    if value.shape[-1] == 0:
        out = out[..., :0]
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None)
    return (out, lse) if return_lse else out


def _added_mask(q: Any, k: Any, v: Any, mask: Any, how: Dict[str, Any]) -> Tuple[Any, Any]:
    """A mask that stayed an array, added to the scores."""
    bias, seen = open_empty_rows(_added(mask), False)
    if how["bias"] is not None:
        bias = bias + how["bias"]
    out, lse = attend(q, k, v, **{**how, "bias": bias})
    if seen is None:
        return out, lse
    return out.masked_fill(~seen[..., None], 0.0), lse.masked_fill(~seen, -float("inf"))


def _check_shape(block_mask: Any, query: Any, key: Any) -> None:
    if not isinstance(block_mask, BlockMask):
        raise TypeError(f"flex_attention: block_mask is a {type(block_mask).__name__}, expected one "
                        "from rapt.create_block_mask")
    batch, heads, queries, keys = block_mask.shape
    given = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    fits = batch in (1, given[0]) and heads in (1, given[1]) and (queries, keys) == given[2:]
    if not fits:
        raise ValueError(f"flex_attention: block_mask has shape {block_mask.shape}, expected to "
                         f"broadcast to {given}")


def _each_pattern(q: Any, k: Any, v: Any, patterns: List[List[Any]], how: Dict[str, Any]) -> Any:
    """One call for each pattern."""
    if len(patterns) == 1 and len(patterns[0]) == 1:
        return attend(q, k, v, patterns[0][0], **how)
    if how["bias"] is not None and len(patterns[0]) > 1:
        raise ValueError("flex_attention: a bias with masks that differ between heads is given, "
                         "expected the same mask for all heads")
    xp = sys.modules["torch"] if torch_functions(q) else sys.modules["numpy"]
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
