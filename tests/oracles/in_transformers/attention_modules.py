"""Which attention modules of a model ran, and which of them through rapt."""

import functools
import inspect
import re

INTERFACE = re.compile(r"ALL_ATTENTION_FUNCTIONS(\.\w|\[|,)")


@functools.cache
def _has_interface(kind):
    """By its source: Transformers has no list of them."""
    if not kind.__module__.startswith("transformers."):
        return False
    try:
        return INTERFACE.search(inspect.getsource(kind)) is not None
    except (OSError, TypeError):
        return False


def with_interface(model):
    """{name: module} of the modules that ask Transformers' AttentionInterface for their attention."""
    return {name: module for name, module in model.named_modules() if _has_interface(type(module))}


class Reached:
    """What runs in a model while this object is alive. `call(module)` says that rapt's attention
    serves a module; a module that runs without such a call computes its attention in another way."""

    def __init__(self, model):
        self.modules = with_interface(model)
        self.ran, self.through, self.otherwise = set(), set(), set()
        self._names = {id(module): name for name, module in self.modules.items()}
        self._served = []
        self._hooks = []
        for name, module in self.modules.items():
            self._hooks += [module.register_forward_pre_hook(functools.partial(self._enter, name)),
                            module.register_forward_hook(functools.partial(self._leave, name))]

    def call(self, module):
        name = self._names.get(id(module))
        if name is not None:
            self.through.add(name)
            self._served.append(name)

    def _enter(self, name, *_):
        self.ran.add(name)
        self._served = [x for x in self._served if x != name]

    def _leave(self, name, *_):
        if name not in self._served:
            self.otherwise.add(name)

    def close(self):
        for hook in self._hooks:
            hook.remove()

    def verdict(self, why=""):
        """pass if every module ran and each of its runs went through rapt."""
        silent = [name for name in self.modules if name not in self.ran]
        if not silent and not self.otherwise:
            return f"pass: {len(self.modules)} modules"
        parts = []
        if silent:
            parts.append(f"{len(silent)} of {len(self.modules)} did not run ({_some(silent)})")
        if self.otherwise:
            parts.append(f"{len(self.otherwise)} of {len(self.modules)} ran without rapt "
                         f"({_some(sorted(self.otherwise))})")
        return f"in part: {', '.join(parts)}{why and '; '}{why}"


def _some(names):
    return ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")
