"""Patterns: who may see whom. Inside torch.compile they are texts, which the compiler can hold."""

from __future__ import annotations

import operator

from rapt import _core
from rapt._core import Pattern

__all__ = ["Pattern", "alibi_slopes", "bigbird", "blocks", "causal", "chunks", "dilated", "documents", "full", "keys",
           "lsh_pattern", "prefix", "tokens", "window"]


def compiling() -> bool:
    """torch.compiler.is_compiling, as soon as there is torch."""
    return False


class TracedPattern:
    """A pattern made while torch.compile traces: its text, joined by & and | as patterns are."""

    def __init__(self, text: str):
        self.text = text

    def __and__(self, other):
        return TracedPattern(_joined(self.text, text_of(other), "&"))

    def __or__(self, other):
        return TracedPattern(_joined(self.text, text_of(other), "|"))

    def __rand__(self, other):
        return TracedPattern(_joined(text_of(other), self.text, "&"))

    def __ror__(self, other):
        return TracedPattern(_joined(text_of(other), self.text, "|"))

    def __str__(self) -> str:
        return self.text


def text_of(pattern) -> str:
    if isinstance(pattern, TracedPattern):
        return pattern.text
    return pattern if isinstance(pattern, str) else _text(pattern)


def constant(function):
    """torch.compile calls it once and keeps the answer: torch.compiler.assume_constant_result without torch."""
    function._dynamo_marked_constant = True
    return function


def decided(given):
    """Numbers as constants: a graph that left a length open is made for this one, and again for others."""
    if isinstance(given, (list, tuple)):
        return [decided(x) for x in given]
    return operator.index(given) if isinstance(given, int) and not isinstance(given, bool) else given


@constant
def _text(pattern) -> str:
    return str(pattern)


def check_lengths(pattern, queries, keys):
    """ValueError if the pattern does not fit these lengths."""
    if compiling():
        _check_text(text_of(pattern), decided(queries), decided(keys))
    else:
        _core.Pattern(pattern).check(queries, keys)


@constant
def _check_text(text, queries, keys):
    _core.Pattern(text).check(queries, keys)


@constant
def _joined(a: str, b: str, sign: str) -> str:
    first, second = _core.Pattern(a), _core.Pattern(b)
    return str(_core_and(first, second) if sign == "&" else _core_or(first, second))


@constant
def _leaf_text(name, arguments) -> str:
    return str(getattr(_core, name)(*arguments))


def _leaf(name, *arguments):
    if compiling():
        return TracedPattern(_leaf_text(name, tuple([decided(x) for x in arguments])))
    return getattr(_core, name)(*arguments)


def _method(name, sign):
    """Pattern's method, and what stands for it while torch.compile traces."""
    core = getattr(_core.Pattern, name)

    def join(self, other):
        if compiling():
            mine, theirs = text_of(self), text_of(other)
            return TracedPattern(_joined(theirs, mine, sign) if name.startswith("__r") else
                                 _joined(mine, theirs, sign))
        return core(self, other)

    join.__name__, join.__doc__ = name, core.__doc__
    return core, join


_core_and, Pattern.__and__ = _method("__and__", "&")
_core_or, Pattern.__or__ = _method("__or__", "|")
_, Pattern.__rand__ = _method("__rand__", "&")
_, Pattern.__ror__ = _method("__ror__", "|")


def full():
    """Every pair."""
    return _leaf("full")


def causal(align="last"):
    """Keys at or before the query's position."""
    return _leaf("causal", align)


def window(left, right, align="last"):
    """Keys from `left` before to `right` after the query's position, both ends included."""
    return _leaf("window", left, right, align)


def tokens(positions):
    """Global tokens: all see them, and they see all."""
    return _leaf("tokens", positions)


def prefix(n):
    """The first n positions see each other."""
    return _leaf("prefix", n)


def documents(lengths, key_lengths=None):
    """Packed sequences: a query sees the keys of its own document."""
    return _leaf("documents", lengths, key_lengths)


def blocks(size, table):
    """Block-sparse: query block r sees the key blocks table[r]."""
    return _leaf("blocks", size, table)


def keys(n):
    """Only the first n keys exist; the rest is padding."""
    return _leaf("keys", n)


def chunks(size, before, after):
    """Reformer's local attention: chunks in a ring."""
    return _leaf("chunks", size, before, after)


def dilated(step, left, right):
    """Every step-th key around the query."""
    return _leaf("dilated", step, left, right)


def lsh_pattern(chunk=64, rounds=1, buckets=(), seed=0, before=1, after=0, shared=True, once=False):
    """Reformer's hashed attention as a pattern; it may stand under & with others."""
    return _leaf("lsh_pattern", chunk, rounds, buckets, seed, before, after, shared, once)


def bigbird(tokens, block=64, random=None, head=0):
    """BigBird's blocks as a pattern for so many tokens: the first and the last block, each with its
    neighbours, and random ones."""
    return _leaf("bigbird", tokens, block, random, head)


@constant
def alibi_slopes(heads):
    """The published slopes for any number of heads."""
    return _core.alibi_slopes(heads)
