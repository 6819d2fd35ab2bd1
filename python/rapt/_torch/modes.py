"""What PyTorch does with a call: traces, transforms, modes, gradients, autocast."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
import torch.autograd.forward_ad as _forward_ad
from torch.nn import Parameter

PLAIN = (torch.Tensor, Parameter)
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_autocast = torch.is_autocast_enabled
_grad_enabled = torch.is_grad_enabled


def plain_call(q: Any, *tensors: Any) -> bool:
    """Whether a call may go straight into the core: nothing traces, transforms, casts or differentiates it,
    and its tensors are no subclasses. Every function asks this. q is a tensor, the others may be anything."""
    if (_is_compiling() or _tracing_state() is not None or _modes() or _transforms()
            or _forward_ad._current_level >= 0 or _autocast("cpu") or not q.is_cpu):
        return False
    grad = _grad_enabled()
    if type(q) not in PLAIN or grad and q.requires_grad:
        return False
    for x in tensors:
        if type(x) in PLAIN:
            if grad and x.requires_grad:
                return False
        elif isinstance(x, torch.Tensor):
            return False
    return True


def traced() -> bool:
    """Whether the call is being recorded, so that the values of tensors may decide nothing."""
    return _is_compiling() or _tracing_state() is not None or bool(_modes()) or _transforms()


def readable(tensor: Any) -> bool:
    """Whether the values of a tensor may decide something."""
    return not traced() and type(tensor) in PLAIN and tensor.is_cpu


def transformed() -> bool:
    """Whether torch.func or forward-mode AD is active; both go through autograd.Function."""
    return not _is_compiling() and (_transforms() or _forward_ad._current_level >= 0)


def autocast_type() -> Optional[torch.dtype]:
    """The type that autocast casts to, or None."""
    return torch.get_autocast_dtype("cpu") if _autocast("cpu") else None


def autocast(*tensors: Any) -> Tuple[Any, ...]:
    """As torch does for its own attention: autocast converts floats other than f64."""
    dtype = autocast_type()
    if dtype is None:
        return tensors
    return tuple(x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point()
                 and x.dtype != torch.float64 else x for x in tensors)


def refuse_gradients(where: str, *arrays: Any) -> None:
    """For calls that are not operators, and would lose gradients or be left out of a graph."""
    tensors = [x for x in arrays if isinstance(x, torch.Tensor)]
    if (_is_compiling() or _tracing_state() is not None or _transforms() or _forward_ad._current_level >= 0
            or _modes() and _records()):
        raise RuntimeError(f"{where}: a trace, a mode or a transform is active, and this call is not an "
                           "operator that they could record; expected a plain eager call")
    refuse_requires_grad(where, *tensors)


def refuse_requires_grad(where: str, *arrays: Any) -> None:
    """For calls without gradients."""
    if _grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays):
        raise ValueError(f"{where}: an operand requires gradients and this call has none; use "
                         "torch.no_grad() or detach()")


def _records() -> bool:
    """Whether one of the modes makes a graph; others only observe."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None
