"""Positions: rotary, sinusoidal, learned, axial."""

from __future__ import annotations

from rapt import _core, _given
from rapt._core import DynamicNtk, Linear, Llama3, Long, Ntk, Yarn
from rapt.attention import torch_side

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

    def apply(self, x, positions=0, layout="bhld"):
        """x [batch, heads, tokens, dim] turned. positions: that of the first token, or integers
        [tokens], [batch, tokens], with sections [axes, batch, tokens]."""
        side = torch_side(x)
        if side is None:
            return self._apply(x, positions, layout)
        return side.rope(self, x, positions, layout)

    def apply_backward(self, dout, positions=0, layout="bhld"):
        """From gradients of what apply returned to gradients of what it was given."""
        return self._apply_backward(dout, positions, layout)

    def for_length(self, tokens):
        """This rope for sequences of so many tokens; differs under DynamicNtk and Long only."""
        return Rope(super().for_length(tokens))

    def for_queries(self):
        """With xPos: the rope of queries."""
        return Rope(super().for_queries())

    def for_keys(self):
        """With xPos: the rope of keys."""
        return Rope(super().for_keys())


def sinusoidal(positions, dim, *, like, base=10000.0, layout="interleaved", inclusive=False):
    """Sines and cosines [positions, dim] of a number of tokens or a list of positions, as an array
    of the library of `like`.

    >>> import numpy as np
    >>> sinusoidal(5, 8, like=np.zeros(1, np.float32)).shape
    (5, 8)
    """
    return _core.sinusoidal(like, positions, dim, base, layout, _given.flag("sinusoidal: inclusive", inclusive))


def learned(table, tokens, *, batch=1, positions=0, offset=0):
    """Rows of a learned table [rows, dim], that of token t being position(t) + offset: [batch,
    tokens, dim]."""
    side = torch_side(table)
    if side is None:
        return _core.learned(table, batch, tokens, positions, offset)
    return side.learned(table, batch, tokens, positions, offset)


def axial(rows, columns, tokens, *, batch=1, positions=0, column_major=False):
    """Learned positions on a grid: rows [rows, row_dim] give the first channels, columns [columns,
    column_dim] the rest: [batch, tokens, row_dim + column_dim]."""
    column_major = _given.flag("axial: column_major", column_major)
    side = torch_side(rows, columns)
    if side is None:
        return _core.axial(rows, columns, batch, tokens, positions, column_major)
    return side.axial(rows, columns, batch, tokens, positions, column_major)
