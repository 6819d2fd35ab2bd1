"""The options of a call as one value."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NoReturn, Optional, Sequence, SupportsIndex, Tuple, Union, final

from rapt import _given
from rapt.attention.bias import Bias
from rapt.typing import ArrayLike, Floats, Integers, PatternLike, RandomBlocks, ScaleLike


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Attention:
    """The options of a call: attend, attend_backward, explain and KvCache take it in place of a pattern.

    pattern: a Pattern, its text ("window(512, 0)") or a Plan; None: every query sees every key.
    scale: None (1 / sqrt(dim)), a number, "inverse_dim", "none", "log_n" or a Scale.
    softcap: c caps a logit to c * tanh(logit / c), before the bias; None: no cap.
    bias: a Bias (alibi, t5_bias, ...), or an array that is added to the logits.
    relative_values: Shaw's table [2 * reach + 1, value_dim], added to the values by distance.
    rotations: [heads, dim, rounds, half the sum of the bucket factors], in place of those of an lsh seed.
    sinks: one logit per head that takes probability and adds no value.
    dropout, seed: each probability is dropped at this rate; the seed alone decides which. PyTorch
    tensors may leave the seed out: it is drawn from torch's generator.

    >>> import numpy as np, rapt
    >>> x = np.ones((1, 2, 5, 4), np.float32)
    >>> options = rapt.Attention("causal", softcap=30.0, bias=rapt.alibi(2))
    >>> attended = rapt.attend(x, x, x, options, return_attended=True)
    >>> rapt.attend_backward(x, x, x, x, attended, options).dq.shape
    (1, 2, 5, 4)
    """

    pattern: PatternLike = None
    scale: ScaleLike = None
    softcap: Optional[float] = None
    bias: Union[Bias, ArrayLike, None] = None
    relative_values: Optional[ArrayLike] = None
    rotations: Optional[ArrayLike] = None
    sinks: Optional[Floats] = None
    dropout: float = 0.0
    seed: Optional[SupportsIndex] = None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Longformer:
    """The options of attend_longformer and its backward, which describes them."""

    window: int = 256
    classes: Optional[Integers] = None
    dilation: Union[int, Integers, None] = None
    causal: bool = False
    scale: ScaleLike = None
    dropout: float = 0.0
    seed: Optional[SupportsIndex] = None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class BigBird:
    """The options of attend_bigbird and its backward, which describes them."""

    block: int = 64
    random: Optional[RandomBlocks] = None
    first_block_counts: int = 1
    attention_mask: Optional[Integers] = None
    scale: ScaleLike = None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ReformerLocal:
    """The options of attend_reformer_local and its backward, which describes them."""

    chunk: int = 64
    before: int = 1
    after: int = 0
    causal: bool = False
    attention_mask: Optional[Integers] = None
    empty_rows: Literal["zeros", "sum"] = "zeros"
    dropout: float = 0.0
    seed: Optional[SupportsIndex] = None


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Lsh:
    """The options of attend_lsh, which describes them."""

    chunk: int = 64
    rounds: int = 1
    buckets: Sequence[int] = ()
    seed: int = 0
    before: int = 1
    after: int = 0
    once: bool = False


def values_of(where: str, kind: Any, options: Any, **keywords: Any) -> Tuple[Any, ...]:
    """The values of an options object, in the order of the keywords, which must be left out beside it."""
    if type(options) is not kind:
        raise TypeError(f"{where}: options is {_given.said(options)}, expected a rapt.{kind.__name__}")
    usual = {field.name: field.default for field in dataclasses.fields(kind)}
    for name, given in keywords.items():
        if given is not usual[name] and not (isinstance(given, (int, float, str)) and given == usual[name]):
            raise TypeError(f"{where}: {name} is given beside a rapt.{kind.__name__}, expected it inside: "
                            f"rapt.{kind.__name__}({name}=...)")
    return tuple(getattr(options, name) for name in keywords)


def fields(where: str, options: Attention, scale: Any, softcap: Any, bias: Any, relative_values: Any,
           rotations: Any, sinks: Any, dropout: Any, seed: Any) -> Tuple[Any, ...]:
    """The values of an options object, in the order of its fields. The others are keywords of the same call,
    which must be left out."""
    if not (scale is softcap is bias is relative_values is rotations is sinks is seed is None) or dropout:
        _refuse(where, scale=scale, softcap=softcap, bias=bias, relative_values=relative_values,
                rotations=rotations, sinks=sinks, dropout=dropout or None, seed=seed)
    return (options.pattern, options.scale, options.softcap, options.bias, options.relative_values,
            options.rotations, options.sinks, options.dropout, options.seed)


def _refuse(where: str, **keywords: Any) -> NoReturn:
    name = next(name for name, given in keywords.items() if given is not None)
    raise TypeError(f"{where}: {name} is given beside a rapt.Attention, expected it inside: "
                    f"rapt.Attention({name}=...)")
