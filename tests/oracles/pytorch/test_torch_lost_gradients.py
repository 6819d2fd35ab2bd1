"""Where a gradient would be lost, or be that of other numbers: refused, or kept from happening."""

import numpy as np
import pytest
import torch

import rapt
from rapt import positions

TRAINED = torch.tensor(2.0, requires_grad=True)
Q = np.random.default_rng(0).standard_normal((1, 2, 6, 8), dtype=np.float32)


@pytest.mark.parametrize("name, make", [
    ("Rope: base", lambda x: positions.Rope(8, base=x)),
    ("Rope: xpos", lambda x: positions.Rope(8, xpos=x)),
    ("LinearRope: factor", lambda x: positions.LinearRope(x)),
    ("NtkRope: factor", lambda x: positions.NtkRope(x)),
    ("DynamicNtkRope: factor", lambda x: positions.DynamicNtkRope(x)),
    ("YarnRope: factor", lambda x: positions.YarnRope(x)),
    ("YarnRope: mscale", lambda x: positions.YarnRope(2.0, mscale=x)),
    ("YarnRope: attention_factor", lambda x: positions.YarnRope(2.0, attention_factor=x)),
    ("Llama3Rope: high", lambda x: positions.Llama3Rope(high=x)),
    ("LongRope: short_factors", lambda x: positions.LongRope([x] * 4, [1.0] * 4)),
    ("LongRope: long_factors", lambda x: positions.LongRope([1.0] * 4, x.repeat(4))),
    ("LongRope: factor", lambda x: positions.LongRope([1.0] * 4, [1.0] * 4, factor=x)),
    ("sinusoidal: base", lambda x: positions.sinusoidal(5, 8, like=Q, base=x)),
])
def test_numbers_of_positions_are_no_tensors(name, make):
    with pytest.raises(TypeError, match=f"{name} is a torch.Tensor, expected a Python number"):
        make(TRAINED)


@pytest.mark.parametrize("given", [
    lambda x: {"bias": rapt.alibi(x)}, lambda x: {"bias": x.reshape(1, 2, 1, 1)}, lambda x: {"sinks": x},
    lambda x: {"relative_values": x[:, None].expand(2, 8)[:1]},
])
def test_numpy_queries_take_nothing_that_learns(given):
    trained = torch.tensor([0.5, 0.25], requires_grad=True)
    with pytest.raises(ValueError, match="attend: an operand requires gradients and this call has none"):
        rapt.attend(Q, Q, Q, "causal", **given(trained))
    rapt.attend(Q, Q, Q, "causal", **given(trained.detach()))


@pytest.mark.parametrize("given, shape", [
    (lambda x: {"bias": rapt.dense_bias(x)}, (1, 2, 6, 6)), (lambda x: {"bias": rapt.alibi(x)}, (2,)),
    (lambda x: {"sinks": x}, (2,)), (lambda x: {"bias": rapt.relative_keys(x)}, (3, 8)),
    (lambda x: {"relative_values": x}, (3, 8)),
])
def test_arrays_that_change_after_forward_change_no_gradient(given, shape):
    array = np.random.default_rng(1).random(shape, dtype=np.float32)

    def gradient(change):
        q = torch.tensor(Q, requires_grad=True)
        mine = array.copy()
        out = rapt.attend(q, q, q, "causal", **given(mine))
        mine += change
        out.square().sum().backward()
        return q.grad

    assert torch.equal(gradient(5.0), gradient(0.0))
