"""The types of what rapt takes and returns. Importing them imports neither numpy nor PyTorch."""

from __future__ import annotations

from typing import Any, Dict, Literal, Protocol, Sequence, Union

from rapt import _core

__all__ = ["Array", "ArrayLike", "Floats", "Integers", "Layout", "PatternLike", "Positions", "RandomBlocks",
           "ScaleLike", "SupportsArrayInterface", "SupportsBuffer", "SupportsDLPack"]


class SupportsDLPack(Protocol):
    """PyTorch tensors and the arrays of most other libraries."""

    def __dlpack__(self) -> Any: ...


class SupportsBuffer(Protocol):
    """memoryview and everything else with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


class SupportsArrayInterface(Protocol):
    """numpy arrays of every type, whose buffers type checkers see only from Python 3.12 on."""

    @property
    def __array_interface__(self) -> Dict[str, Any]: ...


#: An operand: a numpy array, a PyTorch tensor, or anything with the buffer protocol or DLPack.
ArrayLike = Union[SupportsDLPack, SupportsBuffer, SupportsArrayInterface]
#: A result: an array of the library that the operands came from. These have no type in common.
Array = Any
#: Numbers, one for each head for instance.
Floats = Union[ArrayLike, Sequence[float]]
#: Whole numbers, positions for instance.
Integers = Union[ArrayLike, Sequence[int]]
#: Blocks of each query block, or such for each head: BigBird's random blocks.
RandomBlocks = Union[ArrayLike, Sequence[Sequence[int]], Sequence[Sequence[Sequence[int]]]]
#: The position of the first token, or that of every token.
Positions = Union[int, Integers]
#: Axes of operands: [batch, heads, tokens, dim] or [batch, tokens, heads, dim].
Layout = Literal["bhld", "blhd"]
#: Which keys a query sees: a pattern, its text, a plan of it, or None for all keys.
PatternLike = Union[_core.Pattern, _core.Plan, str, None]
#: What multiplies q.k: a number, a Scale, its name, or None for 1 / sqrt(dim).
ScaleLike = Union[_core.Scale, float, str, None]
