"""Arguments of compiled functions that are no tensors: a compiled call answers for what it is given
now, whatever an earlier call was given. The truth is the plain call."""

import weakref

import numpy
import pytest
import torch

import rapt
from rapt.compat import flash_attn
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
    "options": (attended, lambda i: rapt.Attention(rapt.window(i, 0), scale=0.1 + i)),
    "block mask": (masked, lambda i: rapt.create_block_mask(rapt.flex.sliding_window(i), None, None, 12, 12)),
    "mask function": (masked, lambda i: rapt.create_block_mask(
        lambda b, h, q, k: (k <= q) & (q - k <= i), None, None, 12, 12)),
    "rope": (turned, lambda i: rapt.positions.Rope(8, base=100.0 + 50 * i)),
    "scaling": (lambda x, scaling: rapt.positions.Rope(8, scaling=scaling).apply(x, positions=3),
                lambda i: rapt.positions.LinearRope(1.0 + i)),
}


@pytest.mark.parametrize("name", TEMPORARIES)
def test_a_temporary_is_not_taken_for_the_one_before(name):
    call, made = TEMPORARIES[name]
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="eager")
    found = [compiled(X, made(i)) for i in range(6)]
    for i, got in enumerate(found):
        torch.testing.assert_close(got, call(X, made(i)), rtol=0, atol=1e-6, msg=lambda m: f"step {i}: {m}")


ARGUMENTS = {"Pattern": rapt.causal, "Attention": rapt.Attention, "Scale": rapt.Scale.none, "Context": rapt.Context,
             "Plan": lambda: rapt.Plan("causal", 4), "Rope": lambda: rapt.positions.Rope(8),
             "KvCache": lambda: rapt.KvCache(1, 8), "Linear": lambda: rapt.positions.LinearRope(2.0),
             "Ntk": lambda: rapt.positions.NtkRope(2.0), "Mask": lambda: rapt.flex.sliding_window(2)}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_take_weak_references(name):
    """By which torch.compile knows that an object is gone and its address another's."""
    one = ARGUMENTS[name]()
    reference = weakref.ref(one)
    assert reference() is one
    del one
    assert reference() is None


def over_pages(x, **how):
    cache = rapt.KvCache(2, 8)
    cache.append(cache.add(), x.detach(), x.detach())
    return cache.attend(x, [0], **how)


ENDS = torch.tensor([0, 2])
# Functions of a tensor and a number that multiplies, caps or drops.
NUMBERS = {
    "attend, scale": lambda x, n: rapt.attend(x, x, x, scale=n),
    "attend, softcap": lambda x, n: rapt.attend(x, x, x, softcap=n),
    "attend, dropout": lambda x, n: rapt.attend(x, x, x, dropout=n),
    "sdpa, scale": lambda x, n: rapt.scaled_dot_product_attention(x, x, x, scale=n),
    "sdpa, dropout_p": lambda x, n: rapt.scaled_dot_product_attention(x, x, x, dropout_p=n),
    "flex, scale": lambda x, n: rapt.flex_attention(x, x, x, scale=n),
    "flex, softcap": lambda x, n: rapt.flex_attention(x, x, x, score_mod=rapt.flex.softcap(n)),
    "flash, softmax_scale": lambda x, n: flash_attn.flash_attn_func(x, x, x, softmax_scale=n),
    "flash, softcap": lambda x, n: flash_attn.flash_attn_func(x, x, x, softcap=n),
    "flash, dropout_p": lambda x, n: flash_attn.flash_attn_func(x, x, x, dropout_p=n),
    "varlen, softmax_scale": lambda x, n: flash_attn.flash_attn_varlen_func(
        x[0], x[0], x[0], ENDS, ENDS, 2, 2, softmax_scale=n),
    "varlen, dropout_p": lambda x, n: flash_attn.flash_attn_varlen_func(
        x[0], x[0], x[0], ENDS, ENDS, 2, 2, dropout_p=n),
    "longformer, scale": lambda x, n: rapt.attend_longformer(x, x, x, window=2, scale=n),
    "longformer, dropout": lambda x, n: rapt.attend_longformer(x, x, x, window=2, dropout=n),
    "bigbird, scale": lambda x, n: rapt.attend_bigbird(x, x, x, block=4, scale=n),
    "local, dropout": lambda x, n: rapt.attend_reformer_local(x, x, x, chunk=4, dropout=n),
    "lsh, scale": lambda x, n: rapt.attend_lsh(x, x, chunk=4, buckets=[4], scale=n),
}
WITHOUT_GRADIENTS = {
    "flash cache, softmax_scale": lambda x, n: flash_attn.flash_attn_with_kvcache(x, x, x, softmax_scale=n),
    "flash cache, softcap": lambda x, n: flash_attn.flash_attn_with_kvcache(x, x, x, softcap=n),
}
EAGER = {
    "KvCache, scale": lambda x, n: over_pages(x, scale=n),
    "KvCache, softcap": lambda x, n: over_pages(x, softcap=n),
    "Scale.value": lambda x, n: rapt.attend(x, x, x, scale=rapt.Scale.value(n)),
    "Scale.log_n": lambda x, n: rapt.attend(x, x, x, scale=rapt.Scale.log_n(n + 2)),
}
REFUSAL = "is a torch.Tensor, expected a Python number"


@pytest.mark.parametrize("name", NUMBERS | WITHOUT_GRADIENTS | EAGER)
@pytest.mark.parametrize("grad", [False, True])
def test_a_tensor_is_no_number(name, grad):
    """Its gradient would be lost, and a graph would keep its first value."""
    call = (NUMBERS | WITHOUT_GRADIENTS | EAGER)[name]
    with pytest.raises(TypeError, match=REFUSAL):
        call(X, torch.tensor(0.3, requires_grad=grad))
    call(X, 0.3)
    call(X, numpy.float32(0.3))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_tensor_is_no_number_where_gradients_or_transforms_watch(name):
    call = NUMBERS[name]
    with pytest.raises(TypeError, match=REFUSAL):
        call(X.clone().requires_grad_(), torch.tensor(0.3))
    with pytest.raises(TypeError, match=REFUSAL):
        torch.func.grad(lambda n: call(X, n).sum())(torch.tensor(0.3))
    with pytest.raises(TypeError, match=REFUSAL):
        torch.jit.trace(lambda n: call(X, n), torch.tensor(0.3))


@pytest.mark.parametrize("name", NUMBERS | WITHOUT_GRADIENTS)
def test_a_tensor_is_no_number_inside_a_graph(name):
    call = (NUMBERS | WITHOUT_GRADIENTS)[name]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=REFUSAL):
        torch.compile(call, backend="eager", fullgraph=True)(X, torch.tensor(0.3))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="expected one inside torch.compile|" + REFUSAL):
        torch.compile(call, backend="eager", fullgraph=True)(X, numpy.float32(0.3))
    with pytest.raises(TypeError, match=REFUSAL):
        torch.compile(call, backend="eager")(X, torch.tensor(0.3))


@pytest.mark.parametrize("name", ["attend, scale", "attend, softcap", "longformer, scale", "flash cache, softmax_scale"])
def test_numbers_of_numpy_leave_the_graph_and_are_heard(name):
    call = (NUMBERS | WITHOUT_GRADIENTS)[name]
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="eager")
    for number in (0.3, 0.7, 2.0):
        torch.testing.assert_close(compiled(X, numpy.float32(number)), call(X, number), rtol=0, atol=1e-6)


def flash(x, call=flash_attn.flash_attn_func, **how):
    q = x.transpose(1, 2).contiguous()
    return call(q, q.clone(), q.clone(), window_size=(x.shape[2] // 3, 0), **how)


def block_mask(x):
    return rapt.create_block_mask(rapt.flex.causal, None, None, x.shape[2], x.shape[2])


# Functions that make a pattern of a length.
LENGTHS = {
    "window": lambda x: attended(x, rapt.window(x.shape[2] // 3, 0)),
    "prefix": lambda x: attended(x, rapt.causal() | rapt.prefix(x.shape[2] // 2)),
    "documents": lambda x: attended(x, rapt.documents([x.shape[2] // 3, x.shape[2] - x.shape[2] // 3])),
    "blocks": lambda x: attended(x, rapt.blocks(x.shape[2] // 2, [[0], [0, 1], [1]])),
    "bigbird": lambda x: attended(x, rapt.bigbird(x.shape[2], 4)),
    "keys": lambda x: attended(x, rapt.keys(x.shape[2] - 1)),
    "lsh": lambda x: rapt.attend_lsh(x, x, chunk=x.shape[2] // 3, buckets=[x.shape[2] // 4 * 2]),
    "flash_attn_func": flash,
    "flash_attn_with_kvcache": lambda x: flash(x, flash_attn.flash_attn_with_kvcache, causal=True),
    "flex": lambda x: masked(x, block_mask(x)),
    "t5": lambda x: rapt.attend(x, x, x, bias=rapt.t5_bias(torch.ones(32, 2), max_distance=x.shape[2] + 20)),
    "longformer": lambda x: rapt.attend_longformer(x, x, x, window=x.shape[2] // 3),
    "scale": lambda x: scaled(x, 1 / x.shape[2]),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_one_graph_for_each_length_that_a_pattern_is_made_of(name):
    call = LENGTHS[name]
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="eager", fullgraph=True)
    for tokens in (12, 15, 18, 12):
        (x,) = operands(1, 2, tokens, 8, count=1, seed=tokens, grad=False)
        torch.testing.assert_close(compiled(x), call(x), rtol=0, atol=1e-6)
