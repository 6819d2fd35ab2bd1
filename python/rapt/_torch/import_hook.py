"""Registers rapt's operators with PyTorch as soon as both are imported, in either order.

Saved programs (torch.export, torch.jit) look operators up by name when they are loaded, before rapt has
seen a tensor. `import rapt` imports no torch."""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional, Sequence


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch where other finders find it, and registers the operators once its module has run."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != "torch":
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path
                  if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for found in others if found is not None), None)
        loader: Any = None if spec is None else spec.loader
        if not hasattr(loader, "exec_module"):
            return spec
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        loader.exec_module = exec_module
        return spec


def _register() -> None:
    try:
        import rapt._torch.functions  # noqa: F401
    except Exception as error:  # `import torch` must work without rapt
        warnings.warn(f"rapt: its operators could not be registered with this version of PyTorch, and "
                      f"calls with tensors will raise: {type(error).__name__}: {error}", stacklevel=2)


def register_operators() -> None:
    if sys.modules.get("torch") is not None:
        _register()
    elif "torch" not in sys.modules:  # None there forbids its import
        sys.meta_path.insert(0, _AfterTorch())
