"""Models that bring their own sparse attention, with rapt's in its place."""

from __future__ import annotations

_KNOWN = "Longformer, LED, Reformer, BigBird, BigBird-Pegasus or Pegasus-X"
_REFUSED = {"LongT5LocalAttention": "its layers hand on a position bias with the padding mask inside",
            "LongT5TransientGlobalAttention": "its global keys are sums over blocks of the input, "
            "with a position bias that its layers hand on"}


def accelerate(model):
    """Replaces the attention of Longformer, LED, Reformer, BigBird, BigBird-Pegasus and Pegasus-X
    modules in `model`, in place; returns it. Parameters stay where they are, outputs and gradients
    are the same within rounding. Calls that still run Transformers' own attention (attention weights,
    Reformer's cache) give a warning. ValueError if there is nothing to replace."""
    from rapt.integrations.transformers import big_bird, longformer, pegasus_x, reformer

    count = sum(kind.replace(model) for kind in (longformer, reformer, big_bird, pegasus_x))
    if not count:
        for module in model.modules():
            if type(module).__name__ in _REFUSED:
                raise ValueError(f"accelerate: {type(model).__name__} has {type(module).__name__}, "
                                 f"which is not supported: {_REFUSED[type(module).__name__]}")
        raise ValueError(f"accelerate: {type(model).__name__} has no {_KNOWN} attention")
    return model
