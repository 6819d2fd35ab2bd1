"""rapt's PyTorch operators: gradients of every part, torch.compile, torch's own checks."""

import math
import subprocess
import sys

import pytest
import torch

import rapt
from close import assert_close, operands

HEADS, TOKENS, DIM, REACH = 4, 50, 16, 4
NAMES = ("q", "k", "v", "slopes", "amplitudes", "rates", "table", "relative_keys",
         "relative_values", "dense", "sinks")


def learnable():
    torch.manual_seed(1)
    shapes = [(2, HEADS, TOKENS, DIM)] * 3 + [(HEADS,)] * 3 + [(32, HEADS), (2 * REACH + 1, DIM),
              (2 * REACH + 1, DIM), (1, HEADS, TOKENS, TOKENS), (HEADS,)]
    positive = (3, 4, 5)
    return [(torch.rand(s) if i in positive else torch.randn(s)).requires_grad_()
            for i, s in enumerate(shapes)]


def everything(q, k, v, slopes, amplitudes, rates, table, keys, values, dense, sinks):
    bias = (rapt.alibi(slopes) + rapt.kerple_log(amplitudes, rates) + rapt.t5_bias(table)
            + rapt.relative_keys(keys) + rapt.dense_bias(dense))
    return rapt.attend(q, k, v, "causal", bias=bias, relative_values=values, sinks=sinks,
                       softcap=20.0, return_lse=True)


def definition(*inputs):
    q, k, v, slopes, amplitudes, rates, table, keys, values, dense, sinks = (
        x.double() for x in inputs)
    i, j = torch.arange(TOKENS)[:, None], torch.arange(TOKENS)
    at, distance = (j - i).clamp(-REACH, REACH) + REACH, (i - j).abs().double()
    z = (q @ k.mT + torch.einsum("bhid,ijd->bhij", q, keys[at])) / math.sqrt(DIM)
    z = 20 * torch.tanh(z / 20) + dense
    by_head = [x[:, None, None] for x in (slopes, amplitudes, rates)]
    z = z - by_head[0] * distance - by_head[1] * torch.log1p(by_head[2] * distance)
    bucket = torch.tensor([[rapt.t5_bucket(int(b - a)) for b in j] for a in i[:, 0]])
    z = (z + table[bucket].permute(2, 0, 1)).masked_fill(j > i, -math.inf)
    z = torch.cat([z, sinks[:, None, None].expand(2, -1, TOKENS, 1)], -1)
    p = z.softmax(-1)[..., :-1]
    return p @ v + torch.einsum("bhij,ijd->bhid", p, values[at]), z.logsumexp(-1)


def test_every_learnable_part_has_its_gradient():
    inputs = learnable()
    (out, lse), (exact, exact_lse) = everything(*inputs), definition(*inputs)
    assert_close(out, exact)
    assert_close(lse, exact_lse)
    w, wl = torch.randn_like(out), torch.randn_like(lse)
    found = torch.autograd.grad((out * w).sum() + (lse * wl).sum(), inputs)
    expected = torch.autograd.grad((exact * w).sum() + (exact_lse * wl).sum(), inputs)
    for name, a, b in zip(NAMES, found, expected):
        try:
            assert_close(a, b, roundings=64)
        except AssertionError as error:
            raise AssertionError(f"gradient of {name}: {error}") from None


def test_gradcheck():
    """f32 inside: a coarse step and what its rounding allows."""
    q, k, v = operands(1, 2, 6, 4)
    assert torch.autograd.gradcheck(lambda *x: rapt.attend(*x, "causal"), (q, k, v), eps=1e-2,
                                    atol=2e-3, rtol=1e-2, nondet_tol=0.0)


def test_parameters_of_other_types_get_gradients_of_their_type():
    q, k, v = operands(1, 4, 20, 8, dtype=torch.bfloat16)
    slopes = torch.rand(4, dtype=torch.float64, requires_grad=True)
    table = torch.randn(32, 4, dtype=torch.bfloat16, requires_grad=True)
    rapt.attend(q, k, v, bias=rapt.alibi(slopes) + rapt.t5_bias(table)).sum().backward()
    assert slopes.grad.dtype == torch.float64 and table.grad.dtype == torch.bfloat16
    assert q.grad.dtype == torch.bfloat16


PATTERN = rapt.causal() & rapt.window(8, 0)


OPTIONS = rapt.Attention(PATTERN, scale=0.4, softcap=5.0)


@pytest.mark.parametrize("made", ["outside", "inside"])
def test_options_compile_into_one_graph(made):
    q, k, v = operands(2, 3, 40, 8)
    slopes = torch.rand(3, requires_grad=True)

    def model(q, k, v, slopes):
        options = OPTIONS
        if made == "inside":
            options = rapt.Attention(rapt.causal() & rapt.window(8, 0), scale=0.4, softcap=5.0,
                                     bias=rapt.alibi(slopes))
        return rapt.attend(q * 2, k, v, options) + 1

    compiled = torch.compile(model, fullgraph=True)
    mine, plain = compiled(q, k, v, slopes), model(q, k, v, slopes)
    assert torch.equal(mine, plain)
    inputs = (q, k, v, slopes) if made == "inside" else (q, k, v)
    for a, b in zip(torch.autograd.grad(mine.sum(), inputs), torch.autograd.grad(plain.sum(), inputs)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("pattern", ["causal & window(8, 0)", PATTERN, None])
def test_compiles_into_one_graph(pattern):
    q, k, v = operands(2, 3, 40, 8)
    slopes = torch.rand(3, requires_grad=True)

    def model(q, k, v, slopes):
        return rapt.attend(q * 2, k, v, pattern, bias=rapt.alibi(slopes), scale=0.4) + 1

    compiled = torch.compile(model, fullgraph=True)
    mine, plain = compiled(q, k, v, slopes), model(q, k, v, slopes)
    assert torch.equal(mine, plain)
    for a, b in zip(torch.autograd.grad(mine.sum(), (q, k, v, slopes)),
                    torch.autograd.grad(plain.sum(), (q, k, v, slopes))):
        assert torch.equal(a, b)


@pytest.mark.parametrize("layout", ["bhld", "blhd"])
def test_torch_accepts_the_operators(layout):
    from rapt._torch import attend as ops

    how = ("causal", None, None, None, None, None, None, 0.0, 0, False, None)
    q, k, v = operands(2, 4, 9, 8)
    slopes = torch.rand(4 if layout == "bhld" else 9, requires_grad=True)
    torch.library.opcheck(ops.attend_op, (q, k, v, slopes, *[None] * 9, ops.text_of(how, layout, 0)))


def test_longformer_and_lsh_have_gradients():
    six = operands(1, 2, 70, 16, count=6)
    classes = [2] + 60 * [1] + 9 * [0]
    out = rapt.attend_longformer(*six, window=5, classes=classes)
    again = rapt.attend_longformer(*[x.detach() for x in six], window=5, classes=classes, return_attended=True)
    assert torch.equal(out, again.out)
    found = torch.autograd.grad(out.sum(), six)
    expected = rapt.attend_longformer_backward(torch.ones_like(again.out), *[x.detach() for x in six], again,
                                               window=5, classes=classes)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    (qk,) = operands(1, 2, 200, 16, count=1)
    hashed = rapt.attend_lsh(qk, qk, chunk=32, rounds=2, buckets=[8], pattern="causal")
    assert torch.autograd.grad(hashed.sum(), qk)[0].abs().max() > 0


def test_positions_have_gradients():
    (x,) = operands(2, 3, 10, 8, count=1)
    rope = rapt.positions.Rope(8)
    turned = rope.apply(x, positions=5)
    (dx,) = torch.autograd.grad(turned, x, turned.detach())
    assert_close(dx, x.detach())  # a rotation turned back
    table = torch.randn(12, 8, requires_grad=True)
    rapt.positions.learned_positions(table, 10, batch=2).sum().backward()
    assert torch.equal(table.grad, torch.tensor([2.0] * 10 + [0.0] * 2)[:, None].expand(12, 8))


def test_a_cache_refuses_to_lose_gradients():
    cache = rapt.KvCache(kv_heads=2, dim=8)
    sequence = cache.add()
    (x,) = operands(1, 2, 5, 8, count=1)
    cache.append(sequence, x.detach(), x.detach())
    with pytest.raises(ValueError, match="gradients"):
        cache.attend(x, [sequence], "causal")
    with torch.no_grad():
        assert_close(cache.attend(x, [sequence], "causal"), rapt.attend(x, x, x, "causal"))


BIASES = {"slopes": rapt.alibi, "dense": lambda x: rapt.dense_bias(x.expand(1, 2, 5, 5)),
          "array": lambda x: x.expand(1, 2, 5, 5), "rates": lambda x: rapt.kerple_log(torch.ones(2), x.exp()),
          "amplitudes": lambda x: rapt.kerple_power(x.exp(), torch.ones(2)),
          "table": lambda x: rapt.t5_bias(x.expand(32, 2)),
          "keys": lambda x: rapt.relative_keys(x.repeat(4).expand(3, 8))}


@pytest.mark.parametrize("name", BIASES)
def test_a_cache_refuses_to_lose_gradients_of_a_bias(name):
    cache = rapt.KvCache(kv_heads=2, dim=8)
    sequence = cache.add()
    (x,) = operands(1, 2, 5, 8, count=1, grad=False)
    cache.append(sequence, x, x)
    trained = torch.rand((1, 2, 1, 1) if name in ("dense", "array") else 2, requires_grad=True)
    bias = BIASES[name](trained)
    with pytest.raises(ValueError, match="KvCache.attend: an operand requires gradients"):
        cache.attend(x, [sequence], "causal", bias=bias)
    with torch.no_grad():
        assert_close(cache.attend(x, [sequence], "causal", bias=bias), rapt.attend(x, x, x, "causal", bias=bias))


def test_libraries_are_not_mixed():
    (q,) = operands(1, 2, 5, 8, count=1)
    with pytest.raises(TypeError, match="one library"):
        rapt.attend(q, q.detach().numpy(), q)
    array = q.detach().numpy()
    for call in (rapt.attend, rapt.attend_reformer_local, rapt.attend_bigbird, rapt.attend_longformer,
                 rapt.scaled_dot_product_attention):
        for mixed in ((array, q, q), (q, array, q), (q, q, array), (array, array, q)):
            with pytest.raises(TypeError, match="one library"):
                call(*mixed)
    with pytest.raises(TypeError, match="CPU"):
        rapt.attend(q, torch.empty(1, 2, 5, 8, device="meta"), q)


def test_vmap_goes_item_by_item():
    q, k, v = operands(3, 1, 2, 5, 8, grad=False)
    mapped = torch.vmap(lambda a, b, c: rapt.attend(a, b, c, "causal"))(q, k, v)
    assert torch.equal(mapped, torch.stack([rapt.attend(*x, "causal") for x in zip(q, k, v)]))


def every_operator(dtype=torch.float32):
    """Arguments for each, by name."""
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in operands(2, 4, 9, 8))
    grad = torch.randn(2, 4, 9, 8, dtype=dtype)
    text = "bhld;0;0;0.0;0.0;0.0;;0;both;0;;causal"
    seed, plain = torch.tensor(7), [x.detach() for x in (q, k, v)]
    out, lse, top, total, *_ = torch.ops.rapt.attend(*plain, *[None] * 9, seed, text)
    rope = "bhld;" + rapt.positions.Rope(8)._text()
    long = "bhld;2;0;0;0.0;0.0;0;;"
    kept = [*torch.ops.rapt.attend_longformer(*plain, *plain, torch.ones(9, dtype=torch.long), None, long)][:5]
    blocks, local = "bhld;0;;3;1;0;0.0", "bhld;0;;3;1;0;1;zeros;0.5"
    packed = [x.detach()[0].transpose(0, 1).contiguous().requires_grad_() for x in (q, k, v)]
    ends = torch.tensor([0, 4, 9])
    varlen = [*(x.detach() for x in packed), ends, ends, None, None, 9, 9, text.replace("bhld", "blhd")]
    v_out, v_lse, v_top, v_total, _ = torch.ops.rapt.flash_varlen(*varlen)
    table, cached = torch.randn(12, 8), [torch.randn(2, 6, 4, 8) for _ in range(2)]
    return {
        "attend": (q, k, v, *[None] * 9, seed, text.replace(";0.0;;0;both", ";0.5;;0;both")),
        "attend_backward": (grad, lse, *plain, out, top, total, *[None] * 9, seed, text, True),
        "attend_bigbird": (q, k, v, None, None, None, blocks),
        "attend_bigbird_backward": (grad, *plain, *torch.ops.rapt.attend_bigbird(*plain, None, None, None, blocks)[:3],
                                    None, None, None, blocks),
        "attend_reformer_local": (q, k, v, None, None, seed, local),
        "attend_reformer_local_backward": (
            grad, *plain, *torch.ops.rapt.attend_reformer_local(*plain, None, None, seed, local)[:3], None, None, seed,
            local),
        "attend_longformer": (q, k, v, None, None, None, None, None, long),
        "attend_longformer_backward": (grad, kept, *plain, *plain, torch.ones(9, dtype=torch.long), None, long),
        "rope": (q, torch.arange(9), 0, False, rope),
        "learned": (table.clone().requires_grad_(), None, 2, 2, 5, 1),
        "learned_backward": (torch.randn(2, 5, 8), None, 2, 12, 1),
        "axial": (table.clone().requires_grad_(), table.clone().requires_grad_(), None, 0, 2, 5, False),
        "axial_backward": (torch.randn(2, 5, 16), table, table, None, 0, False),
        "flash_varlen": (*packed, *varlen[3:]),
        "flash_varlen_backward": (torch.randn(9, 4, 8, dtype=dtype), v_lse, [v_out, v_top, v_total], *varlen),
        "flash_kvcache": (torch.randn(2, 1, 4, 8), *cached, torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 8), None,
                          None, torch.tensor([2, 5]), None, None, None,
                          "[0, 0.0, true, [-1, -1], 0.0, true, \"\"]"),
    }


def test_every_operator_is_listed_here():
    """In a process of its own: rapt.integrations adds operators where another test imports it."""
    code = """import rapt, torch
rapt.attend(*[torch.zeros(1, 1, 1, 1)] * 3)
print(*(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("rapt::")))"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.split("::")[1].split(".")[0] for name in said.split()} == set(every_operator())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(every_operator()))
def test_torch_accepts_every_operator(name, dtype):
    torch.library.opcheck(getattr(torch.ops.rapt, name).default, every_operator(dtype)[name])
