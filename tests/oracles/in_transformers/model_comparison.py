"""Outputs of a model by rapt and by eager attention, compared: what counts as rounding."""

import re

import torch


class NothingToTest(Exception):
    """The model has no such thing."""


class NotTested(Exception):
    """The tiny model or its inputs do not work without rapt."""


class Different(Exception):
    pass


def short(error):
    text = re.sub(r" from '/[^']*'?", "", " ".join(str(error).split())) or type(error).__name__  # no paths
    return f"{type(error).__name__}: {text}"[:160]


def tensors(output, path=""):
    """Every floating-point tensor of an output, by name."""
    if torch.is_tensor(output):
        return {path: output} if output.is_floating_point() else {}
    if hasattr(output, "items"):
        output = output.items()
    elif isinstance(output, (list, tuple)):
        output = enumerate(output)
    else:
        return {}
    return {k: v for name, part in output for k, v in tensors(part, f"{path}.{name}").items()}


def compare(mine, eager, true, weights=False):
    """Attention weights apart from everything else: some models return them unasked from eager
    attention alone."""
    mine, true, *eager = ({k: v for k, v in tensors(x).items() if weights == ("attentions" in k)}
                          for x in (mine, true, *eager))
    if mine.keys() != eager[0].keys():
        raise Different(f"outputs {sorted(mine.keys() ^ eager[0].keys())[:4]} on one side only")
    if not mine:
        raise NothingToTest("no floating-point outputs")
    if all(not x.isfinite().any() for x in eager[0].values()):
        raise NotTested("eager attention gives no finite number")
    for name, x in mine.items():
        y = eager[0][name]
        if x.shape != y.shape:
            raise Different(f"{name.lstrip('.')} has shape {list(x.shape)}, eager {list(y.shape)}")
        if x.numel():
            z = true[name] if name in true and true[name].shape == y.shape else y
            _compare(name.lstrip("."), *(t.detach().double() for t in (
                x, z, *(one[name] for one in eager))))


def _compare(name, x, z, *eager):
    known = eager[0].isfinite()
    if not x[known].isfinite().all():
        raise Different(f"{name} is not finite where eager is")
    if not known.any():
        return
    z = torch.where(z.isfinite(), z, eager[0])[known]
    rounding = max((y[known] - z).abs().max() for y in eager)
    bound = 4 * rounding + 16 * torch.finfo(torch.float32).eps * z.abs().max()
    off = (x[known] - z).abs().max()
    if off > bound:
        raise Different(f"{name} differs by {off:.1e}, at most {bound:.1e} is rounding")
