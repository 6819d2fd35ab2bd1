"""rapt.attend against PyTorch's own attention and autograd, in f64."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import rapt


def operands(*shape, count=3, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape).to(dtype).requires_grad_() for _ in range(count)]


def assert_close(mine, theirs, dtype=torch.float32):
    size = max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(mine.double(), theirs.double(), rtol=0,
                               atol=16 * size * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_output_and_gradients_equal_sdpa(dtype, causal):
    q, k, v = operands(2, 4, 100, 32, dtype=dtype)
    mine = rapt.attend(q, k, v, "causal" if causal else None)
    exact = sdpa(q.double(), k.double(), v.double(), is_causal=causal)
    assert mine.dtype == dtype
    assert_close(mine, exact, dtype)
    dout = torch.randn_like(exact)
    found = torch.autograd.grad(mine, (q, k, v), dout.to(dtype))
    expected = torch.autograd.grad(exact, (q, k, v), dout.to(dtype).double())
    for a, b in zip(found, expected):
        assert a.dtype == dtype
        assert_close(a, b, dtype)
