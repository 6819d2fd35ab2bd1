"""Positions: rotary, sinusoidal, learned, axial."""

from __future__ import annotations

import json

from rapt import _core, _given
from rapt._core import DynamicNtk, Linear, Llama3, Long, Ntk, Yarn
from rapt.attention import refuse_watched, torch_side

__all__ = ["DynamicNtk", "Linear", "Llama3", "Long", "Ntk", "Rope", "Yarn", "axial", "learned",
           "sinusoidal"]


class Rope(_core.Rope):
    """Rotary positions: pairs of channels turn by position * frequency.

    layout is "half_split" (GPT-NeoX, Llama as on the Hub) or "interleaved" (RoFormer, GPT-J).
    scaling is None, Linear, Ntk, DynamicNtk, Yarn, Llama3 or Long. sections are the pairs of each
    axis (M-RoPE), sections_order "blocks", "interleaved" or "restarted". xpos is its scale base.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 8), np.float32)
    >>> bool(np.allclose(np.linalg.norm(Rope(8).apply(x), axis=-1), 8 ** 0.5))
    True
    """

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        copied = isinstance(arguments[0], Rope) if arguments else False
        self._recipe = arguments[0]._recipe if copied else (arguments, named, ())

    def __reduce__(self):
        return _rebuilt, self._recipe

    def _text(self) -> str:
        """This rope in words that make it again, in another process as well."""
        return json.dumps(self._recipe, default=_scaling_words)

    @staticmethod
    def _from_text(text):
        return _rebuilt(*json.loads(text, object_hook=_scaling_of))

    def _derived(self, name, *arguments):
        """What a method of the core makes of this one."""
        made = Rope.__new__(Rope)
        _core.Rope.__init__(made, getattr(_core.Rope, name)(self, *arguments))
        given, named, steps = self._recipe
        made._recipe = (given, named, (*steps, (name, *arguments)))
        return made

    def apply(self, x, positions=0, layout="bhld"):
        """x [batch, heads, tokens, dim] turned. positions: that of the first token, or integers
        [tokens], [batch, tokens], with sections [axes, batch, tokens]."""
        side = torch_side(x)
        if side is None:
            return self._apply(x, positions, layout)
        return side.rope(self, x, positions, layout)

    def apply_backward(self, dout, positions=0, layout="bhld"):
        """From gradients of what apply returned to gradients of what it was given."""
        side = torch_side(dout)
        if side is None:
            return self._apply_backward(dout, positions, layout)
        return side.rope(self, dout, positions, layout, back=True)

    def for_length(self, tokens):
        """This rope for sequences of so many tokens; differs under DynamicNtk and Long only."""
        return self._derived("for_length", tokens)

    def for_queries(self):
        """With xPos: the rope of queries."""
        return self._derived("for_queries")

    def for_keys(self):
        """With xPos: the rope of keys."""
        return self._derived("for_keys")


def _rebuilt(arguments, named, steps):
    rope = Rope(*arguments, **named)
    for name, *given in steps:
        rope = rope._derived(name, *given)
    return rope


def _scaling_words(scaling):
    if hasattr(scaling, "tolist"):  # numbers of numpy's
        return scaling.tolist()
    kind, arguments = scaling.__reduce__()
    return {"scaling": kind.__name__, "arguments": arguments}


def _scaling_of(words):
    if "arguments" not in words:
        return words
    return getattr(_core, words["scaling"])(*words["arguments"])


def sinusoidal(positions, dim, *, like, base=10000.0, layout="interleaved", inclusive=False):
    """Sines and cosines [positions, dim] of a number of tokens or a list of positions, as an array
    of the library of `like`.

    >>> import numpy as np
    >>> sinusoidal(5, 8, like=np.zeros(1, np.float32)).shape
    (5, 8)
    """
    refuse_watched("sinusoidal", positions)
    return _core.sinusoidal(like, positions, dim, base, layout, _given.flag("sinusoidal: inclusive", inclusive))


def _sizes(where, **sizes):
    return [_given.whole(f"{where}: {name}", size) for name, size in sizes.items()]


def learned(table, tokens, *, batch=1, positions=0, offset=0):
    """Rows of a learned table [rows, dim], that of token t being position(t) + offset: [batch,
    tokens, dim]."""
    batch, tokens, offset = _sizes("learned", batch=batch, tokens=tokens, offset=offset)
    side = torch_side(table)
    if side is None:
        return _core.learned(table, batch, tokens, positions, offset)
    return side.learned(table, batch, tokens, positions, offset)


def axial(rows, columns, tokens, *, batch=1, positions=0, column_major=False):
    """Learned positions on a grid: rows [rows, row_dim] give the first channels, columns [columns,
    column_dim] the rest: [batch, tokens, row_dim + column_dim]."""
    column_major = _given.flag("axial: column_major", column_major)
    batch, tokens = _sizes("axial", batch=batch, tokens=tokens)
    side = torch_side(rows, columns)
    if side is None:
        return _core.axial(rows, columns, batch, tokens, positions, column_major)
    return side.axial(rows, columns, batch, tokens, positions, column_major)
