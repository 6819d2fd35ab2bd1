"""Which models attn_implementation reaches."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Set

from transformers import PreTrainedModel

_NAMES: Set[str] = set()
_OWN_TABLE = re.compile(r"\w+_CLASSES\[\s*(?:self\.)?config\._attn_implementation\s*\]")
_ACCELERATED = {"longformer", "led", "reformer", "big_bird"}


def refuse_models_without_the_interface(name: str) -> None:
    """A model with its own attention code would accept the name and ignore it, or look it up
    in a table of its own; this makes it raise instead."""
    _NAMES.add(name)
    original = PreTrainedModel.get_correct_attn_implementation
    if getattr(original, "checks_rapt", False):
        return

    @functools.wraps(original)
    def get_correct_attn_implementation(self, requested_attention, is_init_check=False):
        if requested_attention in _NAMES:
            _check(type(self), requested_attention, self.config)
        return original(self, requested_attention, is_init_check)

    get_correct_attn_implementation.checks_rapt = True  # type: ignore[attr-defined]
    PreTrainedModel.get_correct_attn_implementation = get_correct_attn_implementation


def _check(model, name, config):
    if model._can_set_attn_implementation() and not _own_table(model.__module__):
        return
    instead = "attn_implementation=\"eager\""
    if config.model_type in _ACCELERATED:
        instead += " and rapt.integrations.transformers.accelerate(model)"
    raise ValueError(
        f"attn_implementation={name!r}: {model.__name__} computes its attention by itself, expected "
        f"a model that uses Transformers' AttentionInterface; use {instead}, or name the parts that "
        f"may have it: attn_implementation={{\"\": \"eager\", \"text_config\": {name!r}}}")


@functools.cache
def _own_table(module: str) -> bool:
    try:
        return bool(_OWN_TABLE.search(inspect.getsource(sys.modules[module])))
    except (KeyError, OSError, TypeError):
        return False
