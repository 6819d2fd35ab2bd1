"""Positions: rotary, sinusoidal, learned, axial."""

from __future__ import annotations

import json
from typing import Any, List, Literal, Optional, Sequence, Tuple, Union, overload

from rapt import _core, _given
from rapt._core import DynamicNtkRope, LinearRope, Llama3Rope, LongRope, NtkRope, YarnRope
from rapt._renamed import refuse_attributes
from rapt._tensors import refuse_traced, torch_functions
from rapt.typing import Array, ArrayLike, Integers, Layout, Positions

__all__ = ["DynamicNtkRope", "LinearRope", "Llama3Rope", "LongRope", "NtkRope", "Rope", "YarnRope",
           "axial_positions", "learned_positions", "sinusoidal"]

refuse_attributes(globals(), learned="learned_positions", axial="axial_positions", DynamicNtk="DynamicNtkRope",
                  Linear="LinearRope", Llama3="Llama3Rope", Long="LongRope", Ntk="NtkRope", Yarn="YarnRope")

#: How a rope is stretched beyond the length that its model was trained on.
Scaling = Union[DynamicNtkRope, LinearRope, Llama3Rope, LongRope, NtkRope, YarnRope]


class Rope(_core.Rope):
    """Rotary positions: pairs of channels rotate by position * frequency.

    layout is "half_split" (GPT-NeoX, Llama as on the Hub) or "interleaved" (RoFormer, GPT-J).
    scaling is None, LinearRope, NtkRope, DynamicNtkRope, YarnRope, Llama3Rope or LongRope. sections are the
    pairs of each axis (M-RoPE), sections_order "blocks", "interleaved" or "restarted". xpos is its scale base.

    >>> import numpy as np
    >>> x = np.ones((1, 2, 5, 8), np.float32)
    >>> bool(np.allclose(np.linalg.norm(Rope(8).apply(x), axis=-1), 8 ** 0.5))
    True
    """

    @overload
    def __init__(self, other: Rope, /) -> None: ...

    @overload
    def __init__(self, dim: int, base: float = ..., layout: Literal["half_split", "interleaved"] = ...,
                 rotated: Optional[int] = ..., proportional: bool = ..., scaling: Optional[Scaling] = ...,
                 sections: Optional[Integers] = ...,
                 sections_order: Literal["blocks", "interleaved", "restarted"] = ...,
                 xpos: Optional[float] = ...) -> None: ...

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        copied = isinstance(arguments[0], Rope) if arguments else False
        self._recipe = arguments[0]._recipe if copied else (arguments, named, ())

    def __reduce__(self) -> Tuple[Any, ...]:
        return _rebuilt, self._recipe

    def _text(self) -> str:
        """This rope as text, from which _from_text makes it again, in another process as well."""
        return json.dumps(self._recipe, default=_scaling_words)

    @staticmethod
    def _from_text(text: str) -> Rope:
        return _rebuilt(*json.loads(text, object_hook=_scaling_of))

    def _derived(self, name: str, *arguments: Any) -> Rope:
        """What a method of the core makes of this one."""
        made = Rope.__new__(Rope)
        _core.Rope.__init__(made, getattr(_core.Rope, name)(self, *arguments))
        given, named, steps = self._recipe
        made._recipe = (given, named, (*steps, (name, *arguments)))
        return made

    def apply(self, x: ArrayLike, positions: Positions = 0, layout: Layout = "bhld") -> Array:
        """x [batch, heads, tokens, dim] rotated. positions: that of the first token, or integers
        [tokens], [batch, tokens], with sections [axes, batch, tokens]."""
        functions = torch_functions(x)
        if functions is None:
            return self._apply(x, positions, layout)
        return functions.rope(self, x, positions, layout)

    def apply_backward(self, dout: ArrayLike, positions: Positions = 0, layout: Layout = "bhld") -> Array:
        """The gradient of x, from that of what apply returned."""
        functions = torch_functions(dout)
        if functions is None:
            return self._apply_backward(dout, positions, layout)
        return functions.rope(self, dout, positions, layout, back=True)

    def for_length(self, tokens: int) -> Rope:
        """This rope for sequences of that many tokens; only DynamicNtkRope and LongRope depend on it."""
        return self._derived("for_length", tokens)

    def for_queries(self) -> Rope:
        """With xPos: the rope of queries."""
        return self._derived("for_queries")

    def for_keys(self) -> Rope:
        """With xPos: the rope of keys."""
        return self._derived("for_keys")


def _rebuilt(arguments: Sequence[Any], named: Any, steps: Sequence[Any]) -> Rope:
    rope = Rope(*arguments, **named)
    for name, *given in steps:
        rope = rope._derived(name, *given)
    return rope


def _scaling_words(scaling: Any) -> Any:
    if hasattr(scaling, "tolist"):  # numpy's numbers
        return scaling.tolist()
    kind, arguments = scaling.__reduce__()
    return {"scaling": kind.__name__, "arguments": arguments}


def _scaling_of(words: Any) -> Any:
    if "arguments" not in words:
        return words
    return getattr(_core, words["scaling"])(*words["arguments"])


def sinusoidal(positions: Union[int, Integers], dim: int, *, like: ArrayLike, base: float = 10000.0,
               layout: str = "interleaved", inclusive: bool = False) -> Array:
    """Sines and cosines [positions, dim] for a number of tokens or a list of positions, as an array of the
    library that `like` is from.

    >>> import numpy as np
    >>> sinusoidal(5, 8, like=np.zeros(1, np.float32)).shape
    (5, 8)
    """
    refuse_traced("sinusoidal", positions)
    return _core.sinusoidal(like, positions, dim, base, layout, _given.flag("sinusoidal: inclusive", inclusive))


def _sizes(where: str, **sizes: Any) -> List[int]:
    return [_given.whole(f"{where}: {name}", size) for name, size in sizes.items()]


def learned_positions(table: ArrayLike, tokens: int, *, batch: int = 1, positions: Positions = 0, offset: int = 0) -> Array:
    """Rows of a learned table [rows, dim]: token t gets row position(t) + offset. Returns [batch, tokens,
    dim]."""
    batch, tokens, offset = _sizes("learned_positions", batch=batch, tokens=tokens, offset=offset)
    functions = torch_functions(table)
    if functions is None:
        return _core.learned(table, batch, tokens, positions, offset)
    return functions.learned(table, batch, tokens, positions, offset)


def axial_positions(rows: ArrayLike, columns: ArrayLike, tokens: int, *, batch: int = 1, positions: Positions = 0,
          column_major: bool = False) -> Array:
    """Learned positions on a grid: rows [rows, row_dim] give the first channels, columns [columns,
    column_dim] the rest. Returns [batch, tokens, row_dim + column_dim]."""
    column_major = _given.flag("axial_positions: column_major", column_major)
    batch, tokens = _sizes("axial_positions", batch=batch, tokens=tokens)
    functions = torch_functions(rows, columns)
    if functions is None:
        return _core.axial(rows, columns, batch, tokens, positions, column_major)
    return functions.axial(rows, columns, batch, tokens, positions, column_major)
