"""Registers rapt's operators with PyTorch as soon as both are imported, in either order.

Programs that were saved (torch.export, torch.jit) look operators up by name when they are loaded, before
rapt has seen a tensor. `import rapt` imports no torch."""

from __future__ import annotations

import importlib.abc
import sys
import warnings


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch where others find it, and registers once its module has run."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path
                  if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for found in others if found is not None), None)
        if spec is None or not hasattr(spec.loader, "exec_module"):
            return spec
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = exec_module
        return spec


def _register():
    try:
        import rapt._torch  # noqa: F401
    except Exception as error:  # an `import torch` has to work without us
        warnings.warn(f"rapt: its operators could not be registered with this version of PyTorch, and "
                      f"calls with tensors will raise: {type(error).__name__}: {error}", stacklevel=2)


def register_operators():
    if sys.modules.get("torch") is not None:
        _register()
    elif "torch" not in sys.modules:  # None there says that nobody may import it
        sys.meta_path.insert(0, _AfterTorch())
