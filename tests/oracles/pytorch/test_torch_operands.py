"""Tensors that are more than their memory: negated, zero, on no device, of a subclass, under autocast."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.flop_counter import FlopCounterMode

import rapt
from close import assert_close, operands

pytestmark = pytest.mark.filterwarnings("ignore")

Q, K, V = operands(2, 2, 5, 8, grad=False)
ROPE = rapt.positions.Rope(8)


def negated():
    """A view whose numbers are those in memory times -1."""
    x = torch.randn(2, 2, 5, 8, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    return x


def cached(x):
    cache = rapt.KvCache(kv_heads=2, dim=8)
    sequence = cache.add()
    cache.append(sequence, x[:1], x[:1])
    return cache.attend(Q[:1], [sequence])


READERS = {
    "q": lambda x: rapt.attend(x, K, V),
    "k and v": lambda x: rapt.attend(Q, x, x, "causal"),
    "sinks": lambda x: rapt.attend(Q, K, V, sinks=x[0, 0, 0, :2]),
    "slopes": lambda x: rapt.attend(Q, K, V, bias=rapt.alibi(x[0, :, 0, 0])),
    "a bias": lambda x: rapt.attend(Q, K, V, bias=x[..., :5]),
    "rope": ROPE.apply,
    "a cache": cached,
    "local": lambda x: rapt.attend_reformer_local(x, K, V, chunk=2),
    "longformer": lambda x: rapt.attend_longformer(Q, x, V, window=2),
    "learned": lambda x: rapt.positions.learned_positions(x[0, 0], 4),
    "a gradient": lambda x: rapt.attend_backward(x, Q, K, V, rapt.attend(Q, K, V, return_attended=True)).dv,
}


@pytest.mark.parametrize("name", READERS)
def test_a_negation_is_read(name):
    x = negated()
    assert torch.equal(READERS[name](x), READERS[name](x.clone()))


def test_a_negation_without_a_stride_is_read():
    x = torch._neg_view(Q)
    assert torch.equal(rapt.attend(x, K, V), rapt.attend(-Q, K, V))


def test_a_zero_tensor_is_zeros():
    zero = torch._efficientzerotensor(Q.shape)
    assert torch.equal(rapt.attend(zero, K, V), rapt.attend(torch.zeros_like(Q), K, V))


def freed():
    x = Q.clone()
    x.untyped_storage().resize_(0)
    return x


STRANGE = {
    "sparse": (TypeError, "sparse_coo", lambda: Q.to_sparse()),
    "quantized": (TypeError, "qint8", lambda: torch.quantize_per_tensor(Q, 0.1, 0, torch.qint8)),
    "nested": (TypeError, "no numbers", lambda: torch.nested.nested_tensor(list(Q))),
    "jagged": (TypeError, "nested", lambda: torch.nested.nested_tensor(list(Q), layout=torch.jagged)),
    "mkldnn": (TypeError, "mkldnn", lambda: Q.to_mkldnn()),
    "complex": (TypeError, "complex64", lambda: Q.to(torch.complex64)),
    "freed": (ValueError, "no memory", freed),
    "uninitialized": (ValueError, "uninitialized parameter", lambda: torch.nn.UninitializedParameter()),
}


@pytest.mark.parametrize("name", STRANGE)
def test_tensors_without_numbers_in_rows_are_refused(name):
    error, words, make = STRANGE[name]
    x = make()
    with pytest.raises(error, match=words):
        rapt.attend(Q, K, V, bias=x) if name == "uninitialized" else rapt.attend(x, K, V)


def test_wrappers_of_torch_func_have_no_memory():
    kept = []
    torch.vmap(lambda x: kept.append(x) or x)(Q)
    with pytest.raises((TypeError, RuntimeError)):
        rapt.attend(kept[0], kept[0], kept[0])


class Named(torch.Tensor):
    """A subclass that adds nothing to what its numbers mean."""


class Secret(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError("secret")


def test_a_subclass_with_plain_numbers_is_a_tensor():
    for x in (Q.as_subclass(Named), torch.nn.Parameter(Q, requires_grad=False)):
        assert torch.equal(rapt.attend(x, K, V), rapt.attend(Q, K, V))
        assert torch.equal(rapt.attend(Q, K, V, sinks=x[0, 0, 0, :2]), rapt.attend(Q, K, V, sinks=Q[0, 0, 0, :2]))


def test_a_subclass_with_a_meaning_of_its_own_is_refused():
    bias = causal_upper_left(5, 5)
    secret = Q.as_subclass(Secret)
    attended = rapt.attend(Q, K, V, return_attended=True)
    for call in (lambda: rapt.attend(Q, K, V, bias=bias), lambda: ROPE.apply(Q, secret),
                 lambda: cached(secret), lambda: rapt.attend_backward(secret, Q, K, V, attended),
                 lambda: rapt.mask(causal_upper_left(5, 5)), lambda: rapt.lsh_recall(secret, K, "lsh(4, 1, {2})")):
        with pytest.raises((TypeError, NotImplementedError), match="subclass|secret"):
            call()


def test_a_subclass_that_dispatches_is_asked():
    two = rapt.attend(*(TwoTensor(x, 2 * x) for x in (Q, K, V)))
    assert type(two) is TwoTensor
    assert torch.equal(two.a, rapt.attend(Q, K, V)) and torch.equal(two.b, rapt.attend(2 * Q, 2 * K, 2 * V))
    mixed = rapt.attend(Q, TwoTensor(K, 2 * K), V)
    assert torch.equal(mixed.b, rapt.attend(Q, 2 * K, V))


@pytest.mark.parametrize("queries, keys", [(6, 6), (4, 7), (7, 4)])
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
def test_causal_biases_are_patterns(make, queries, keys):
    (q,) = operands(2, 2, queries, 8, count=1)
    k, v = operands(2, 2, keys, 8, count=2, seed=1)
    mask = make(queries, keys)
    mine = rapt.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    exact = sdpa(q.double(), k.double(), v.double(), attn_mask=mask._materialize())
    assert_close(mine, exact)
    assert_close(rapt.scaled_dot_product_attention(q[0], k[0], v[0], attn_mask=mask), exact[0])
    with pytest.raises(ValueError, match="causal for"):
        rapt.scaled_dot_product_attention(q, q, q, attn_mask=make(queries + 1, keys))


AUTOCAST = {
    "attend": lambda q, k, v: rapt.attend(q, k, v, "causal"),
    "sdpa": lambda q, k, v: rapt.scaled_dot_product_attention(q, k, v, attn_mask=torch.randn(5, 5)),
    "flex": rapt.flex_attention,
    "local": lambda q, k, v: rapt.attend_reformer_local(q, k, v, chunk=2),
    "bigbird": lambda q, k, v: rapt.attend_bigbird(q, k, v, block=2),
    "longformer": lambda q, k, v: rapt.attend_longformer(q, k, v, window=2),
}


@pytest.mark.parametrize("name", AUTOCAST)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_for_torchs_attention(name, dtype):
    call = AUTOCAST[name]
    short = [x.to(dtype) for x in (Q, K, V)]
    q = Q.clone().requires_grad_()
    torch.manual_seed(0)
    expected = call(*short)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=dtype):
        assert sdpa(Q, K, V).dtype == dtype
        mine = call(q, K, short[2])  # types may differ: all become one
    assert mine.dtype == dtype and torch.equal(mine, expected)
    mine.sum().backward()
    assert q.grad.dtype == torch.float32
    torch._dynamo.reset()
    with torch.autocast("cpu", dtype=dtype):
        assert torch.compile(call, fullgraph=True, backend="aot_eager")(Q, K, V).dtype == dtype
        assert ROPE.apply(Q).dtype == torch.float32


SHAPES = {**AUTOCAST, "rope": lambda q, k, v: ROPE.apply(q),
          "learned": lambda q, k, v: rapt.positions.learned_positions(q[0, 0], 4),
          "gradients": lambda q, k, v: torch.autograd.grad(rapt.attend(q.requires_grad_(), k, v).sum(), q)[0],
          "lse": lambda q, k, v: rapt.attend(q, k, v, return_lse=True)[1]}


@pytest.mark.parametrize("name", SHAPES)
def test_meta_and_fake_tensors_have_the_shape_of_the_result(name):
    call = SHAPES[name]
    if name == "sdpa":
        def call(q, k, v):
            return rapt.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(5, 5, device=q.device))
    real = call(*(x.clone() for x in (Q, K, V)))
    meta = call(*(x.to("meta") for x in (Q, K, V)))
    assert meta.is_meta and (meta.shape, meta.dtype) == (real.shape, real.dtype)
    with FakeTensorMode() as mode:
        fake = call(*(mode.from_tensor(x) for x in (Q, K, V)))
    assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


def test_meta_tensors_are_checked():
    with pytest.raises(ValueError, match="3 axes"):
        rapt.attend(*[torch.empty(2, 5, 8, device="meta")] * 3)
    with pytest.raises(TypeError, match="float64"):
        rapt.attend(*[torch.empty(1, 2, 5, 8, device="meta", dtype=torch.float64)] * 3)


def test_modes_see_the_operator():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        rapt.attend(Q, K, V)
    assert "rapt.attend.default" in seen
    with FlopCounterMode(display=False):
        assert torch.equal(cached(K), cached(K))  # a mode that looks on stops no cache
