"""Options of a call as text: the one form that operators, their fake kernels and torch.compile all take.
Plain formatting, because the compiler traces it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from rapt import _core, _given
from rapt._tensors import refuse_mixed
from rapt.attention.patterns import TracedPattern, constant
from rapt.attention.results import WANT_STATS

HALVES = (torch.float16, torch.bfloat16)  # outputs of these types are kept in f32 for gradients


class Options(NamedTuple):
    layout: str
    stats: int
    scale_rule: int
    scale: float
    softcap: Optional[float]
    dropout: float
    kerple: str
    max_distance: int
    direction: str
    threads: int
    isa: str
    pattern: str

    @property
    def context(self) -> Optional[_core.Context]:
        return _core.Context(self.threads, self.isa) if self.threads else None

    @property
    def core_scale(self) -> _core.Scale:
        return _core.Scale.from_rule(self.scale_rule, self.scale)


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Options:
    fields = text.split(";", len(Options._fields) - 1)
    kinds: Tuple[Any, ...] = (str, int, int, float, _softcap, float, str, int, str, int, str, str)
    return Options(*(kind(field) for kind, field in zip(kinds, fields)))


def _softcap(text: str) -> Optional[float]:
    return float(text) or None


def softcap_number(given: Any) -> float:
    """A softcap as text holds it: 0 for None."""
    if given is None:
        return 0.0
    number = real("softcap", given)
    if number == 0.0:
        raise ValueError("softcap is 0, expected a number above 0, or softcap=None for no cap")
    return number


def text_of(how: Any, layout: str, wanted: int) -> str:
    pattern, scale, softcap, bias, _, _, _, dropout, _, _, context = how
    rule, number = scale_of(scale)
    kerple = bias.kerple[0] if bias is not None and bias.kerple else ""
    _, far, direction = bias.table if bias is not None and bias.table else (None, 0, "both")
    threads, isa = context_of(context)
    stats = 1 if wanted & WANT_STATS else 0
    return (f"{layout};{stats};{rule};{number};{softcap_number(softcap)};{real('dropout', dropout)};"
            f"{kerple};{far};{direction};{threads};{isa};{pattern_text(pattern)}")


def checked(where: str, **operands: Tensor) -> None:
    """What operators can refuse on meta tensors and in graphs, where tensors have no values."""
    for name, x in operands.items():
        if x.dim() != 4:
            raise ValueError(f"{where}: {name} has {x.dim()} axes, expected 4: [batch, heads, tokens, dim]")
        if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"{where}: {name} has numbers of {x.dtype}, expected float32, bfloat16 or "
                            "float16")


def as_tensor(where: str, given: Any) -> Optional[Tensor]:
    """Lists and arrays become tensors; tensors keep their gradients. Backward needs the values of this call:
    arrays are copied, because unlike tensors they do not count writes."""
    if given is None or isinstance(given, Tensor):
        return given
    try:
        # Copied before it is a tensor: a clone would be an operation of the trace, in one of its two runs.
        copies = torch.is_grad_enabled() and hasattr(given, "copy")
        return torch.as_tensor(given.copy() if copies else given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{where} is a {type(given).__name__}, expected an array") from error


def all_tensors(where: str, **operands: Any) -> None:
    """Operators take tensors, or None for an operand that is left out."""
    if not all(x is None or isinstance(x, Tensor) for x in operands.values()) or operands["q"] is None:
        refuse_mixed(where, **operands)


def empty_out(like: Tensor, layout: str, dim: Any = None, dtype: Optional[torch.dtype] = None) -> Tensor:
    """An uninitialized tensor as the core returns them: heads come before tokens in memory, whatever the
    layout."""
    shape = (*like.shape[:3], like.shape[3] if dim is None else dim)
    if layout == "bhld":
        return like.new_empty(shape, dtype=dtype)
    return like.new_empty((shape[0], shape[2], shape[1], shape[3]), dtype=dtype).transpose(1, 2)


def empty_unrounded(q: Tensor, layout: str, dim: Any) -> Tensor:
    """The f32 copy of a 16-bit output that the core keeps for gradients; empty if the output is f32."""
    if q.dtype not in HALVES:
        return q.new_empty(0, dtype=torch.float32)
    return empty_out(q, layout, dim, torch.float32)


_SCALES = {"inverse_sqrt_dim": (0, 0.0), "inverse_dim": (1, 0.0), "none": (2, 1.0),
           "log_n": (3, 512.0)}


def real(name: str, given: Any) -> float:
    if isinstance(given, (int, float)):
        return float(given)
    _refuse_traced(name, given)
    return _given.real(name, given)


def _refuse_traced(name: str, given: Any) -> None:
    """Refuses tensors anywhere, which would lose their gradients as numbers. Inside torch.compile it refuses
    everything but Python numbers: numpy's numbers are tensors there, and a graph would keep the first one."""
    if isinstance(given, Tensor):
        raise TypeError(f"{name} is a torch.Tensor, expected a Python number; item() gives one, without gradients")
    if torch.compiler.is_compiling():
        raise TypeError(f"{name} is not a Python number, expected one inside torch.compile")


def scale_of(given: Any) -> Tuple[int, float]:
    """(rule, number) of the core's Scale."""
    if given is None:
        return (0, 0.0)
    if isinstance(given, (int, float)):
        return (2, float(given))
    if isinstance(given, str) and given in _SCALES:
        return _SCALES[given]
    if not isinstance(given, (str, _core.Scale)):
        _refuse_traced("scale", given)
    return _core_scale(given)


def context_of(given: Any) -> Tuple[int, str]:
    return (0, "") if given is None else _core_context(given)


def pattern_text(given: Any) -> str:
    if given is None:
        return "full"
    if isinstance(given, TracedPattern):
        return given.text
    return given if isinstance(given, str) else _core_text(given)


# The compiler cannot trace the core; it calls these once and keeps the results.

@constant
def _core_scale(given: Any) -> Tuple[int, float]:
    scale = _core.scale_of(given)
    return (scale.rule, scale.number)


@constant
def _core_context(given: Any) -> Tuple[int, str]:
    _given.context("attend", given)
    return (given.threads, given.isa)


@constant
def _core_text(given: Any) -> str:
    return str(given.pattern if isinstance(given, _core.Plan) else _core.Pattern(given))
