"""Replaces the sparse attention of Transformers' models by rapt's."""

from __future__ import annotations

from typing import Any, TypeVar

Model = TypeVar("Model")

_KNOWN = "Longformer, LED, Reformer, BigBird, BigBird-Pegasus or Pegasus-X"
_REFUSED = {"LongT5LocalAttention": "its layers pass on a position bias that contains the padding mask",
            "LongT5TransientGlobalAttention": "its global keys are sums over blocks of the input, "
            "with a position bias that its layers pass on"}


def accelerate(model: Model) -> Model:
    """Replaces the attention of Longformer, LED, Reformer, BigBird, BigBird-Pegasus and Pegasus-X
    modules in `model`, in place, and returns it. Parameters are unchanged; outputs and gradients are
    the same within rounding. Calls that still run Transformers' own attention (attention weights,
    Reformer's cache) give a warning. ValueError if there is nothing to replace."""
    from rapt.integrations.transformers import big_bird, longformer, pegasus_x, reformer

    whole: Any = model
    count = sum(kind.replace(whole) for kind in (longformer, reformer, big_bird, pegasus_x))
    if not count:
        for module in whole.modules():
            if type(module).__name__ in _REFUSED:
                raise ValueError(f"accelerate: {type(model).__name__} has {type(module).__name__}, "
                                 f"which is not supported: {_REFUSED[type(module).__name__]}")
        raise ValueError(f"accelerate: {type(model).__name__} has no {_KNOWN} attention")
    return model
