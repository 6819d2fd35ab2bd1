"""Gradients of 16-bit tensors through autograd, against the definition in f64 on the same numbers.

Rows that attend to nearly one key are where they are hard: what is left of the gradient of a logit
is a small difference, which an output rounded to 16 bits would bury.
"""

import pytest
import torch

import rapt

DTYPES = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SCALE, TOKENS = 2.0, 100
WORST = 32


def operands(dtype, count=3):
    torch.manual_seed(3)
    return [torch.randn(1, 2, TOKENS, 32).to(dtype).requires_grad_() for _ in range(count)]


def seen(pattern):
    i, j = torch.arange(TOKENS)[:, None], torch.arange(TOKENS)
    return {"causal": j <= i, "window(8, 8)": (i - j).abs() <= 8}[pattern]


def exact(q, k, v, visible):
    z = (q @ k.mT * SCALE).masked_fill(~visible, -torch.inf)
    return torch.softmax(z, -1) @ v


def relative_errors(got, want):
    """Of each row that has a gradient."""
    size = want.norm(dim=-1)
    error = (got.double() - want).norm(dim=-1)
    seen = size > 1e-3  # below, f16 runs out of small numbers
    return error[seen] / size[seen]


def errors(call, definition, inputs):
    """The relative errors of the rows of each gradient."""
    torch.manual_seed(4)
    out = call(*inputs)
    dout = torch.randn(out.shape).to(out.dtype)
    found = torch.autograd.grad(out, inputs, dout)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    wanted = torch.autograd.grad(definition(*wide), wide, dout.double())
    assert all(a.dtype == x.dtype for a, x in zip(found, inputs))
    return [relative_errors(a, b) for a, b in zip(found, wanted)]


def check(found, dtype, medians=1):
    """In roundings of the type: a row has at most one in the median and WORST anywhere. Gradients from a
    rounded output are off by hundreds in the worst row, and have the wrong sign."""
    middle = [rows.median().item() / DTYPES[dtype] for rows in found]
    worst = [rows.max().item() / DTYPES[dtype] for rows in found]
    assert max(middle) <= medians and max(worst) <= WORST, (middle, worst)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["bhld", "blhd"])
@pytest.mark.parametrize("pattern", ["causal", "window(8, 8)"])
def test_nearly_one_hot_rows_are_as_exact_as_their_type(dtype, layout, pattern):
    def call(q, k, v):
        if layout == "bhld":
            return rapt.attend(q, k, v, pattern, scale=SCALE)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return rapt.attend(q, k, v, pattern, scale=SCALE, layout="blhd").transpose(1, 2)

    found = errors(call, lambda q, k, v: exact(q, k, v, seen(pattern)), operands(dtype))
    check(found, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_compiler_keeps_the_unrounded_output_as_well(dtype):
    compiled = torch.compile(lambda q, k, v: rapt.attend(q, k, v, "causal", scale=SCALE),
                             backend="aot_eager", fullgraph=True)
    found = errors(compiled, lambda q, k, v: exact(q, k, v, seen("causal")), operands(dtype))
    check(found, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_longformer_with_a_global_token(dtype):
    classes = torch.ones(TOKENS, dtype=torch.long)
    classes[0] = 2

    def call(*six):
        return rapt.attend_longformer(*six, window=8, classes=classes, scale=SCALE)

    def definition(q, k, v, q_global, k_global, v_global):
        visible = seen("window(8, 8)").clone()
        visible[:, 0] = True
        local = exact(q, k, v, visible)
        first = exact(q_global, k_global, v_global, torch.ones(TOKENS, TOKENS, dtype=torch.bool))
        return torch.cat([first[:, :, :1], local[:, :, 1:]], 2)

    found = errors(call, definition, operands(dtype, 6))
    check(found, dtype, medians=2)  # of one global query there is no median


@pytest.mark.parametrize("dtype", DTYPES)
def test_bigbird(dtype):
    block = torch.arange(TOKENS) // 16
    near = (block[:, None] - block).abs() <= 1
    ends = (block == 0) | (block == block[-1])

    def call(q, k, v):
        return rapt.attend_bigbird(q, k, v, block=16, scale=SCALE)

    found = errors(call, lambda q, k, v: exact(q, k, v, near | ends | ends[:, None]),
                   operands(dtype))
    check(found, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_reformers_local_attention(dtype):
    block = torch.arange(TOKENS) // 25
    ring = (block[:, None] - block) % 4 <= 1

    def call(q, k, v):
        return rapt.attend_reformer_local(8 * q, k, v, chunk=25)  # its scale is 1 / sqrt(32)

    def definition(q, k, v):
        z = (8 * q @ k.mT / 32**0.5).masked_fill(~ring, -torch.inf)
        return torch.softmax(z, -1) @ v

    found = errors(call, definition, operands(dtype))
    check(found, dtype)


def test_rows_carry_the_unrounded_output_for_16_bits_only():
    q, k, v = (x.detach() for x in operands(torch.bfloat16))
    attended = rapt.attend(q, k, v, "causal", return_attended=True)
    out, rows = attended.out, attended.rows
    assert rows.out.dtype == torch.float32
    assert torch.equal(rows.out.to(out.dtype), out)
    assert rapt.attend(q.float(), k.float(), v.float(), return_attended=True).rows.out is None
    dout = torch.randn(out.shape).to(out.dtype)
    by_hand = rapt.attend_backward(dout, q, k, v, attended, "causal")
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    found = torch.autograd.grad(rapt.attend(*inputs, "causal"), inputs, dout)
    assert all(torch.equal(a, b) for a, b in zip(found, by_hand[:3]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", ["causal", "window(8, 8)"])
def test_the_worst_row_tells_a_rounded_output(dtype, pattern):
    """The bound above would not hold without what the rows carry."""
    q, k, v = (x.detach() for x in operands(dtype))
    attended = rapt.attend(q, k, v, pattern, scale=SCALE, return_attended=True)
    rounded = attended._replace(rows=attended.rows._replace(out=None))
    dout = torch.randn(attended.out.shape).to(dtype)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    wanted = torch.autograd.grad(exact(*wide, seen(pattern)), wide, dout.double())
    for given, fits in ((attended, True), (rounded, False)):
        found = rapt.attend_backward(dout, q, k, v, given, pattern, scale=SCALE)
        worst = max(relative_errors(a, b).max().item() for a, b in zip(found[:3], wanted)) / DTYPES[dtype]
        assert (worst <= WORST) == fits, worst
