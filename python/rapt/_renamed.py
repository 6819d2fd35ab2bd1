"""Names of rapt 0.1: refused with the names they have now."""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, NoReturn, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def refuse_attribute(module: str, name: str, names: Mapping[str, str]) -> NoReturn:
    """What __getattr__ of a module does."""
    if name in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}: it is called {names[name]} now")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def refuse_keywords(where: str, given: Mapping[str, Any], names: Mapping[str, str]) -> NoReturn:
    """What a function does with keywords that it does not have."""
    name = next(iter(given))
    if name in names:
        raise TypeError(f"{where}: {name} is called {names[name]} now")
    raise TypeError(f"{where}() got an unexpected keyword argument {name!r}")


def keywords(**names: str) -> Callable[[_Function], _Function]:
    """A function refuses its old keywords with their new names."""
    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            for name in names:
                if name in given:
                    refuse_keywords(function.__name__, {name: None}, names)
            return function(*arguments, **given)
        return checked  # type: ignore[return-value]
    return decorate
