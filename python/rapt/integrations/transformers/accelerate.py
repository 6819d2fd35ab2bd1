"""Models that bring their own sparse attention, with rapt's in its place."""

from __future__ import annotations


def accelerate(model):
    """Replaces the attention of Longformer, LED, Reformer and BigBird modules in `model`, in place;
    returns it. Parameters stay where they are, outputs and gradients are the same within rounding.
    ValueError if there is nothing to replace."""
    from rapt.integrations.transformers import big_bird, longformer, reformer

    count = longformer.replace(model) + reformer.replace(model) + big_bird.replace(model)
    if not count:
        raise ValueError(f"accelerate: {type(model).__name__} has no Longformer, LED, Reformer or "
                         "BigBird attention")
    return model
