"""How close is close enough: a few roundings of the type, relative to the largest number."""

import torch


def operands(*shape, count=3, dtype=torch.float32, seed=0, grad=True):
    torch.manual_seed(seed)
    return [torch.randn(shape).to(dtype).requires_grad_(grad) for _ in range(count)]


def assert_close(mine, theirs, dtype=torch.float32, roundings=16):
    assert mine.shape == theirs.shape
    size = max(1.0, theirs.abs().max().item()) if theirs.numel() else 1.0
    torch.testing.assert_close(mine.double(), theirs.double(), rtol=0,
                               atol=roundings * size * torch.finfo(dtype).eps)


def assert_same_gradients(mine, theirs, inputs, dtype=torch.float32, roundings=64):
    """Of a random weighting of both outputs."""
    weight = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    weight = weight.to(dtype)
    found = torch.autograd.grad(mine, inputs, weight.to(mine.dtype))
    expected = torch.autograd.grad(theirs, inputs, weight.to(theirs.dtype))
    for a, b, x in zip(found, expected, inputs):
        assert a.dtype == x.dtype
        assert_close(a, b, dtype, roundings)
