"""The options of a call as one value."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn, Optional, SupportsIndex, Tuple, Union, final

from rapt.attention.bias import Bias
from rapt.typing import ArrayLike, Floats, PatternLike, ScaleLike


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
    >>> attended = rapt.attend(x, x, x, options, return_rows=True)
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
