"""Who watches a call: traces, transforms, modes, gradients, autocast. And where seeds come from."""

from __future__ import annotations

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


def direct(q, *tensors) -> bool:
    """Whether a call may go straight into the core: nobody traces, transforms, casts or differentiates
    it, and its tensors are plain ones. Every door asks this. q is a tensor, the others may be anything."""
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


def observed() -> bool:
    """Whether somebody records the call, so that no number may decide anything."""
    return _is_compiling() or _tracing_state() is not None or bool(_modes()) or _transforms()


def readable(tensor) -> bool:
    """Whether a tensor's numbers are there to decide something."""
    return not observed() and type(tensor) in PLAIN and tensor.is_cpu


def transformed() -> bool:
    """Whether torch.func or forward-mode AD is at work; both go through autograd.Function."""
    return not _is_compiling() and (_transforms() or _forward_ad._current_level >= 0)


def autocast_type():
    """The type that autocast gives, or None."""
    return torch.get_autocast_dtype("cpu") if _autocast("cpu") else None


def autocast(*tensors):
    """As torch does for its own attention: under autocast, floats that are not f64 get its type."""
    dtype = autocast_type()
    if dtype is None:
        return tensors
    return tuple(x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point()
                 and x.dtype != torch.float64 else x for x in tensors)


def refuse_gradients(where, *arrays):
    """For calls that are no operators: what would be lost is refused."""
    tensors = [x for x in arrays if isinstance(x, torch.Tensor)]
    if (_is_compiling() or _tracing_state() is not None or _transforms() or _forward_ad._current_level >= 0
            or _modes() and _records()):
        raise RuntimeError(f"{where}: a trace, a mode or a transform is active, and this call is no "
                           "operator that they could record; expected a plain eager call")
    refuse_learnt(where, *tensors)


def refuse_learnt(where, *arrays):
    """For calls without gradients."""
    if _grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays):
        raise ValueError(f"{where}: an operand requires gradients and there are none here; use "
                         "torch.no_grad() or detach()")


def _records() -> bool:
    """Whether one of the modes makes a graph; others look on."""
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    return get_proxy_mode() is not None


def draw_seed():
    """A tensor from torch's generator, so that torch.manual_seed decides and graphs draw anew."""
    return torch.randint(0, 2**62, ())


def number_of(seed) -> int:
    """A seed as the core takes it."""
    return 0 if seed is None else int(seed) % 2**64


def as_seed(seed, dropout):
    """A seed as operators take it: none without dropout, else the given one or a new one."""
    if not dropout:
        return None
    if seed is None:
        return draw_seed()
    return seed if isinstance(seed, torch.Tensor) else torch.tensor(_signed(seed))


def _signed(seed) -> int:
    """The seed as 64 bits with a sign, which is what a tensor holds."""
    return seed - 2**64 if seed >= 2**63 else seed
