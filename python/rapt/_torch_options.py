"""Options of a call as text: the one form that operators, their fake kernels and torch.compile all
take. Plain formatting, because the compiler traces it."""

from __future__ import annotations

import functools
from typing import NamedTuple, Tuple

import torch

from rapt import _core, _given
from rapt.attention import refuse_mixed
from rapt.patterns import TracedPattern, constant

WANT_LSE, WANT_STATS, WANT_ROWS = 1, 2, 4
HALVES = (torch.float16, torch.bfloat16)  # types of outputs that are kept in f32 for gradients


class Options(NamedTuple):
    layout: str
    stats: int
    scale_rule: int
    scale: float
    softcap: float
    dropout: float
    kerple: str
    max_distance: int
    direction: str
    threads: int
    isa: str
    pattern: str

    @property
    def context(self):
        return _core.Context(self.threads, self.isa) if self.threads else None

    @property
    def core_scale(self):
        return _core.Scale.from_rule(self.scale_rule, self.scale)


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Options:
    fields = text.split(";", len(Options._fields) - 1)
    kinds = (str, int, int, float, float, float, str, int, str, int, str, str)
    return Options(*(kind(field) for kind, field in zip(kinds, fields)))


def text_of(how, layout, wanted) -> str:
    pattern, scale, softcap, bias, _, _, _, dropout, _, _, context = how
    rule, number = scale_of(scale)
    kerple = bias.kerple[0] if bias is not None and bias.kerple else ""
    _, far, direction = bias.table if bias is not None and bias.table else (None, 0, "both")
    threads, isa = context_of(context)
    stats = 1 if wanted & WANT_STATS else 0
    return (f"{layout};{stats};{rule};{number};{real('softcap', softcap)};{real('dropout', dropout)};"
            f"{kerple};{far};{direction};{threads};{isa};{pattern_text(pattern)}")


def checked(where, **operands):
    """What operators on meta tensors and in graphs can refuse before there are numbers."""
    for name, x in operands.items():
        if x.dim() != 4:
            raise ValueError(f"{where}: {name} has {x.dim()} axes, expected 4: [batch, heads, tokens, dim]")
        if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"{where}: {name} has numbers of {x.dtype}, expected float32, bfloat16 or "
                            "float16")


def as_tensor(where, given):
    """Lists and arrays become tensors; tensors keep their gradients. Backward needs the numbers of now:
    arrays are copied, because unlike tensors they do not count who writes to them."""
    if given is None or isinstance(given, torch.Tensor):
        return given
    try:
        # Copied before it is a tensor: a clone would be an operation of a trace, in one of its two runs.
        copies = torch.is_grad_enabled() and hasattr(given, "copy")
        return torch.as_tensor(given.copy() if copies else given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{where} is a {type(given).__name__}, expected an array") from error


def all_tensors(where, **operands):
    """Operators take tensors; None stands for an operand that is left out."""
    if not all(x is None or isinstance(x, torch.Tensor) for x in operands.values()) or operands["q"] is None:
        refuse_mixed(where, **operands)


def room(like, layout: str, dim=None, dtype=None):
    """An empty tensor as the core returns them: in memory heads come before tokens, whatever the
    layout."""
    shape = (*like.shape[:3], like.shape[3] if dim is None else dim)
    if layout == "bhld":
        return like.new_empty(shape, dtype=dtype)
    return like.new_empty((shape[0], shape[2], shape[1], shape[3]), dtype=dtype).transpose(1, 2)


def unrounded_room(q, layout: str, dim):
    """The f32 output that the core keeps beside one of 16 bits, which gradients are taken from;
    empty beside f32."""
    if q.dtype not in HALVES:
        return q.new_empty(0, dtype=torch.float32)
    return room(q, layout, dim, torch.float32)


_SCALES = {"inverse_sqrt_dim": (0, 0.0), "inverse_dim": (1, 0.0), "none": (2, 1.0),
           "log_n": (3, 512.0)}


def real(name, given) -> float:
    if isinstance(given, (int, float)):
        return float(given)
    _refuse_traced(name, given)
    return _given.real(name, given)


def _refuse_traced(name, given):
    """Tensors anywhere, as numbers would lose their gradients; inside torch.compile all that is no Python
    number, because numpy's numbers are tensors there and a graph would keep the first one."""
    if isinstance(given, torch.Tensor):
        raise TypeError(f"{name} is a torch.Tensor, expected a Python number; item() gives one, without gradients")
    if torch.compiler.is_compiling():
        raise TypeError(f"{name} is no Python number, expected one inside torch.compile")


def scale_of(given) -> Tuple[int, float]:
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


def context_of(given) -> Tuple[int, str]:
    return (0, "") if given is None else _core_context(given)


def pattern_text(given) -> str:
    if given is None:
        return "full"
    if isinstance(given, TracedPattern):
        return given.text
    return given if isinstance(given, str) else _core_text(given)


# The compiler cannot look into the core; it asks these once.

@constant
def _core_scale(given):
    scale = _core.scale_of(given)
    return (scale.rule, scale.number)


@constant
def _core_context(given):
    _given.context("attend", given)
    return (given.threads, given.isa)


@constant
def _core_text(given):
    return str(given.pattern if isinstance(given, _core.Plan) else _core.Pattern(given))
