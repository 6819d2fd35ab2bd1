"""Checks of arguments: one exception that says what was given and what was expected."""

from __future__ import annotations

import operator
import os
from typing import Any, List, Optional

from rapt import _core

_BYTES = (bytes, bytearray, memoryview)


def shown(value: Any) -> str:
    """A value, shortened if it is long."""
    try:
        text = repr(value)
    except Exception:  # the caller's own __repr__, or a number with too many digits
        text = "something that cannot be shown"
    return text if len(text) <= 60 else text[:57] + "..."


def said(value: Any) -> str:
    """A value as messages show it."""
    return "None" if value is None else f"{shown(value)} ({type(value).__name__})"


def path(where: str, value: Any, expected: str) -> str:
    """A path that C and UTF-8 can hold."""
    try:
        made = os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{where} is {said(value)}, expected {expected}") from None
    if "\0" in made:  # C would cut it there
        raise ValueError(f"{where} is {said(value)}, expected {expected}, without a zero byte")
    try:
        made.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where} is {said(value)}, which is not UTF-8; expected {expected}, in UTF-8") from None
    return made


def word(where: str, value: Any, such: str) -> str:
    """A word; the C++ library checks which one."""
    if not isinstance(value, str):
        raise TypeError(f"{where} is {said(value)}, expected a word such as \"{such}\"")
    return value


def dtype_of(where: str, dtype: Optional[str], array: Any) -> str:
    """The type named, else that of the array, else f32."""
    if dtype is None:
        name = str(getattr(array, "dtype", "float32")).removeprefix("torch.")
        return {"bfloat16": "bf16", "float16": "f16"}.get(name, "f32")
    return word(where, dtype, "bf16")


def whole(where: str, value: Any, least: int = -2**63, most: int = 2**63 - 1) -> int:
    """A whole number that fits the C++ library's integers, which checks its range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{where} is {said(value)}, expected a whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{where} is {shown(number)}, expected {least} to {most}")
    return number


def flag(where: str, value: Any) -> bool:
    """True or False, numpy's too. Anything else would count as one of the two: "no" as True."""
    if isinstance(value, bool):
        return value
    kind = type(value)
    if kind.__module__ != "numpy" or kind.__name__ not in ("bool", "bool_"):
        raise TypeError(f"{where} is {said(value)}, expected True or False")
    return bool(value)


def real(where: str, value: Any) -> float:
    """A number."""
    try:
        if isinstance(value, (str, *_BYTES)):  # float() would parse it
            raise TypeError
        return float(value)
    except OverflowError:
        raise ValueError(f"{where} is {said(value)}, expected a number that a float can hold") from None
    except (TypeError, ValueError):
        raise TypeError(f"{where} is {said(value)}, expected a number") from None


def context(where: str, value: Any) -> _core.Context:
    """A context; None means the defaults of the process."""
    if value is not None and not isinstance(value, _core.Context):
        raise TypeError(f"{where}: context is {said(value)}, expected None or a rapt.Context: "
                        "rapt.Context(threads=2)")
    return _core.Context() if value is None else value


def text(where: str, value: Any) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise TypeError(f"{where} is {said(value)}, expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} is {said(value)}, whose character {error.start} is half of a surrogate pair; "
                         "expected a text that UTF-8 can hold") from None
    return value


def texts(where: str, value: Any) -> List[str]:
    """A text or a list of texts, as a list."""
    if isinstance(value, str):
        return [text(where, value)]
    made = list_of(where, value, "a text or a list of texts")
    return [text(f"{where}[{i}]", each) for i, each in enumerate(made)]


def shape(where: str, value: Any) -> List[int]:
    """Sizes, or those of an array."""
    sizes = list_of(where, getattr(value, "shape", value), "a shape [batch, heads, tokens, dim], or an array")
    return [whole(f"{where}[{i}]", size) for i, size in enumerate(sizes)]


def list_of(where: str, value: Any, expected: str) -> List[Any]:
    """A list of what is given. Bytes are refused, which would become numbers, and a dict, its keys."""
    if not isinstance(value, (*_BYTES, dict)):
        try:
            return list(value)
        except TypeError:
            pass
    raise TypeError(f"{where} is {said(value)}, expected {expected}")


def ids(where: str, value: Any, vocabulary: int) -> List[int]:
    """Token ids of one sequence."""
    if isinstance(value, str):
        raise _text(where, value, "a list of token ids")
    made = list_of(where, value, "a list of token ids")
    try:
        made = [operator.index(id) for id in made]
        fits = not made or (min(made) >= 0 and max(made) < vocabulary)
    except TypeError:
        fits = False
    if not fits:
        for i, id in enumerate(made):
            _id(f"{where}[{i}]", id, vocabulary)
    return made


def sequences(where: str, value: Any, vocabulary: int) -> List[List[int]]:
    """Token ids of several sequences."""
    if isinstance(value, str):
        raise _text(where, value, "a list of lists of token ids")
    made = list_of(where, value, "a list of lists of token ids")
    # A row of an array has an __index__ too.
    if made and hasattr(made[0], "__index__") and getattr(made[0], "ndim", 0) == 0:
        raise TypeError(f"{where} is one list of numbers, expected a list of lists of token ids: "
                        f"[[{shown(made[0])}, ...]]")
    return [ids(f"{where}[{i}]", sequence, vocabulary) for i, sequence in enumerate(made)]


def _text(where: str, value: Any, expected: str) -> TypeError:
    return TypeError(f"{where} is {said(value)}, expected {expected}; model.tokenizer.encode(text) makes them")


def _id(where: str, value: Any, vocabulary: int) -> None:
    try:
        id = operator.index(value)
    except TypeError:  # a row of an array has an __index__ that raises
        raise TypeError(f"{where} is {said(value)}, expected a token id, a whole number") from None
    if not 0 <= id < vocabulary:
        raise ValueError(f"{where} is {shown(id)}, expected 0 to {vocabulary - 1}: "
                         f"the vocabulary has {vocabulary} tokens")
