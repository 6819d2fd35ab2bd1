"""Whether operands are PyTorch tensors, without importing torch."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn, Optional

#: rapt._torch.functions, as soon as it is imported. It sets this itself.
functions: Optional[ModuleType] = None


def load_functions() -> ModuleType:
    """rapt._torch.functions; imports it if nothing has."""
    if functions is not None:
        return functions
    from rapt._torch import functions as imported

    return imported


def torch_functions(*arrays: Any) -> Optional[ModuleType]:
    """rapt._torch.functions if one of the arrays is a PyTorch tensor, else None."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for array in arrays:
        if isinstance(array, torch.Tensor):
            return load_functions()
    return None


def refuse_traced(where: str, *arrays: Any) -> None:
    """For calls that are not PyTorch operators: gradients, traces and transforms would be lost."""
    found = torch_functions(*arrays)
    if found is not None:
        found.refuse_gradients(where, *arrays)


def refuse_mixed(where: str, **operands: Any) -> NoReturn:
    """Operands come from two libraries."""
    kinds = [f"{name} a {type(x).__name__}" for name, x in operands.items()]
    raise TypeError(f"{where}: {', '.join(kinds)}, expected all of one library")
