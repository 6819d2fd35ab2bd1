"""Arguments of compiled functions that are no tensors: a compiled call answers for what it is given
now, whatever an earlier call was given. The truth is the plain call."""

import weakref

import pytest
import torch

import rapt
from close import operands

X = operands(1, 2, 12, 8, count=1, grad=False)[0]


def attended(x, pattern):
    return rapt.attend(x, x, x, pattern)


def scaled(x, scale):
    return rapt.attend(x, x, x, "causal", scale=scale)


def masked(x, mask):
    return rapt.flex_attention(x, x, x, block_mask=mask)


def turned(x, rope):
    return rope.apply(x, positions=3)


# A function of a tensor and a temporary; the temporary of step i.
TEMPORARIES = {
    "window": (attended, lambda i: rapt.window(i, 0)),
    "documents": (attended, lambda i: rapt.documents([i + 1, 11 - i]) & rapt.causal()),
    "plan": (attended, lambda i: rapt.Plan(rapt.window(i, 0), 12, 12)),
    "scale": (scaled, lambda i: rapt.Scale.value(0.1 + i)),
    "number": (scaled, lambda i: 0.1 + i),
    "block mask": (masked, lambda i: rapt.create_block_mask(rapt.flex.sliding_window(i), None, None, 12, 12)),
    "mask function": (masked, lambda i: rapt.create_block_mask(
        lambda b, h, q, k: (k <= q) & (q - k <= i), None, None, 12, 12)),
    "rope": (turned, lambda i: rapt.positions.Rope(8, base=100.0 + 50 * i)),
    "scaling": (lambda x, scaling: rapt.positions.Rope(8, scaling=scaling).apply(x, positions=3),
                lambda i: rapt.positions.Linear(1.0 + i)),
}


@pytest.mark.parametrize("name", TEMPORARIES)
def test_a_temporary_is_not_taken_for_the_one_before(name):
    call, made = TEMPORARIES[name]
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="eager")
    found = [compiled(X, made(i)) for i in range(6)]
    for i, got in enumerate(found):
        torch.testing.assert_close(got, call(X, made(i)), rtol=0, atol=1e-6, msg=lambda m: f"step {i}: {m}")


ARGUMENTS = {"Pattern": rapt.causal, "Scale": rapt.Scale.none, "Context": rapt.Context,
             "Plan": lambda: rapt.Plan("causal", 4), "Rope": lambda: rapt.positions.Rope(8),
             "KvCache": lambda: rapt.KvCache(1, 8), "Linear": lambda: rapt.positions.Linear(2.0),
             "Ntk": lambda: rapt.positions.Ntk(2.0), "Mask": lambda: rapt.flex.sliding_window(2)}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_take_weak_references(name):
    """By which torch.compile knows that an object is gone and its address another's."""
    one = ARGUMENTS[name]()
    reference = weakref.ref(one)
    assert reference() is one
    del one
    assert reference() is None
