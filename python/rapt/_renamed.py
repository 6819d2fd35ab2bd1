"""Names of rapt 0.1: refused with the names they have now."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Mapping, NoReturn, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def refuse_attributes(module: Dict[str, Any], **names: str) -> None:
    """Gives a module, as its globals(), a __getattr__. Type checkers do not see it: to them it would make every
    name valid."""
    def refuse(name: str) -> NoReturn:
        where = f"module {module['__name__']!r} has no attribute {name!r}"
        raise AttributeError(f"{where}: it is called {names[name]} now" if name in names else where)
    module["__getattr__"] = refuse


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
