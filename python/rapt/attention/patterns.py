"""Patterns: which keys a query sees. Inside torch.compile they are texts, which the compiler can hold."""

from __future__ import annotations

import operator
from typing import Any, Callable, List, Literal, Optional, Sequence, Tuple, TypeVar

from rapt import _core
from rapt._core import Pattern
from rapt.typing import Integers, RandomBlocks

__all__ = ["Pattern", "alibi_slopes", "bigbird", "blocks", "causal", "chunks", "dilated", "documents", "full", "keys",
           "lsh", "prefix", "tokens", "window"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiling() -> bool:
    """Replaced by torch.compiler.is_compiling as soon as torch is imported."""
    return False


class TracedPattern:
    """A pattern made while torch.compile traces: its text, joined by & and | as patterns are."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __and__(self, other: Any) -> TracedPattern:
        return TracedPattern(_joined(self.text, text_of(other), "&"))

    def __or__(self, other: Any) -> TracedPattern:
        return TracedPattern(_joined(self.text, text_of(other), "|"))

    def __rand__(self, other: Any) -> TracedPattern:
        return TracedPattern(_joined(text_of(other), self.text, "&"))

    def __ror__(self, other: Any) -> TracedPattern:
        return TracedPattern(_joined(text_of(other), self.text, "|"))

    def __str__(self) -> str:
        return self.text


def text_of(pattern: Any) -> str:
    if isinstance(pattern, TracedPattern):
        return pattern.text
    return pattern if isinstance(pattern, str) else _text(pattern)


def constant(function: _Function) -> _Function:
    """torch.compile calls it once and keeps the result: torch.compiler.assume_constant_result without torch."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def decided(given: Any) -> Any:
    """Numbers as constants: a graph with a symbolic length is specialized to this one, and compiled again for
    others."""
    if isinstance(given, (list, tuple)):
        return [decided(x) for x in given]
    return operator.index(given) if isinstance(given, int) and not isinstance(given, bool) else given


@constant
def _text(pattern: Any) -> str:
    return str(pattern)


def check_lengths(pattern: Any, queries: int, keys: int) -> None:
    """ValueError if the pattern does not fit these lengths."""
    if compiling():
        _check_text(text_of(pattern), decided(queries), decided(keys))
    else:
        _core.Pattern(pattern).check(queries, keys)


@constant
def _check_text(text: str, queries: int, keys: int) -> None:
    _core.Pattern(text).check(queries, keys)


@constant
def _joined(a: str, b: str, sign: str) -> str:
    first, second = _core.Pattern(a), _core.Pattern(b)
    return str(_core_and(first, second) if sign == "&" else _core_or(first, second))


@constant
def _leaf_text(name: str, arguments: Tuple[Any, ...]) -> str:
    return str(getattr(_core, name)(*arguments))


def _leaf(name: str, *arguments: Any) -> Pattern:
    """A Pattern, or while torch.compile traces a TracedPattern, which behaves as one."""
    if compiling():
        return TracedPattern(_leaf_text(name, tuple([decided(x) for x in arguments])))  # type: ignore[return-value]
    made: Pattern = getattr(_core, name)(*arguments)
    return made


def _method(name: str, sign: str) -> Tuple[Any, Any]:
    """Pattern's method, and its replacement, which torch.compile can trace."""
    core = getattr(_core.Pattern, name)

    def join(self: Any, other: Any) -> Any:
        if compiling():
            mine, theirs = text_of(self), text_of(other)
            return TracedPattern(_joined(theirs, mine, sign) if name.startswith("__r") else
                                 _joined(mine, theirs, sign))
        return core(self, other)

    join.__name__, join.__doc__ = name, core.__doc__
    return core, join


_core_and, Pattern.__and__ = _method("__and__", "&")  # type: ignore[method-assign]
_core_or, Pattern.__or__ = _method("__or__", "|")  # type: ignore[method-assign]
_, Pattern.__rand__ = _method("__rand__", "&")  # type: ignore[method-assign]
_, Pattern.__ror__ = _method("__ror__", "|")  # type: ignore[method-assign]


def full() -> Pattern:
    """Every query sees every key."""
    return _leaf("full")


def causal(align: Literal["last", "first"] = "last") -> Pattern:
    """Keys at or before the query's position."""
    return _leaf("causal", align)


def window(left: int, right: int, align: Literal["last", "first"] = "last") -> Pattern:
    """Keys from `left` before to `right` after the query's position, both ends included."""
    return _leaf("window", left, right, align)


def tokens(positions: Integers) -> Pattern:
    """Global tokens: every query sees them, and they see every key."""
    return _leaf("tokens", positions)


def prefix(n: int) -> Pattern:
    """The first n positions see each other."""
    return _leaf("prefix", n)


def documents(lengths: Integers, key_lengths: Optional[Integers] = None) -> Pattern:
    """Packed sequences: a query sees the keys of its own document."""
    return _leaf("documents", lengths, key_lengths)


def blocks(size: int, table: Sequence[Sequence[int]]) -> Pattern:
    """Block-sparse: query block r sees the key blocks table[r]."""
    return _leaf("blocks", size, table)


def keys(n: int) -> Pattern:
    """Only the first n keys exist; the rest is padding."""
    return _leaf("keys", n)


def chunks(size: int, before: int, after: int) -> Pattern:
    """Reformer's local attention: a query sees its own chunk and its neighbours; chunks form a ring."""
    return _leaf("chunks", size, before, after)


def dilated(step: int, left: int, right: int) -> Pattern:
    """Every step-th key around the query."""
    return _leaf("dilated", step, left, right)


def lsh(chunk: int = 64, rounds: int = 1, buckets: Sequence[int] = (), seed: int = 0, before: int = 1,
        after: int = 0, shared: bool = True, once: bool = False) -> Pattern:
    """Reformer's hashed attention as a pattern, which & joins with others. attend_lsh is the whole call."""
    return _leaf("lsh", chunk, rounds, buckets, seed, before, after, shared, once)


def bigbird(tokens: int, block: int = 64, random: Optional[RandomBlocks] = None, head: int = 0) -> Pattern:
    """BigBird's blocks as a pattern for this number of tokens: the first and the last block, each block's
    neighbours, and random ones."""
    return _leaf("bigbird", tokens, block, random, head)


@constant
def alibi_slopes(heads: int) -> List[float]:
    """The published slopes for any number of heads."""
    return _core.alibi_slopes(heads)
