"""Every door of rapt under what PyTorch does to functions: traces, graphs, transforms. The truth is the
plain call on other numbers than those that were traced."""

import io

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import rapt
from rapt.compat import flash_attn
from close import operands

pytestmark = pytest.mark.filterwarnings("ignore")

Q, K, V = operands(2, 2, 9, 8, grad=False)
FLASH = [x.transpose(1, 2).contiguous() for x in (Q, K, V)]
PACKED = [x.reshape(18, 2, 8) for x in FLASH]
ENDS, KEY_ENDS = torch.tensor([0, 5, 18]), torch.tensor([0, 7, 18])
SIX = operands(1, 2, 9, 8, count=6, seed=1, grad=False)
ROPE = rapt.positions.Rope(8)
GLOBAL_PATTERN = rapt.window(3, 0)


def by_function(mask_mod):
    return rapt.create_block_mask(mask_mod, None, None, 9, 9)


def over_cache(q):
    return flash_attn.flash_attn_with_kvcache(q, FLASH[1].clone(), FLASH[2].clone(), FLASH[1][:, :1], FLASH[2][:, :1],
                                              cache_seqlens=torch.tensor([8, 5]), causal=True)


DOORS = {
    "attend": (lambda q: rapt.attend(q, K, V, "causal"), Q),
    "dropout with a seed": (lambda q: rapt.attend(q, K, V, dropout=0.3, seed=2**63 + 5), Q),
    "a pattern made inside": (
        lambda q: rapt.attend(q, K, V, GLOBAL_PATTERN & rapt.causal() | "tokens({0})" & rapt.window(5, 0)), Q),
    "slopes made inside": (lambda q: rapt.attend(q, K, V, bias=rapt.alibi(2)), Q),
    "sdpa": (lambda q: rapt.scaled_dot_product_attention(q, K, V, is_causal=True), Q),
    "sdpa with a mask of the numbers": (
        lambda q: rapt.scaled_dot_product_attention(q, K, V, attn_mask=q[0, 0, :, :1] > 0), Q),
    "flex with a function": (
        lambda q: rapt.flex_attention(q, K, V, block_mask=by_function(lambda b, h, i, j: i >= j)), Q),
    "flex with a name": (lambda q: rapt.flex_attention(q, K, V, block_mask=by_function(rapt.flex.causal)), Q),
    "flex with both": (lambda q: rapt.flex_attention(q, K, V, block_mask=by_function(
        rapt.and_masks(rapt.flex.causal, lambda b, h, i, j: (i - j < 4) & (i != 2)))), Q),
    "flash_attn_func": (
        lambda q: flash_attn.flash_attn_func(q, FLASH[1], FLASH[2], causal=True, window_size=(4, 0)), FLASH[0]),
    "flash_attn_varlen_func": (lambda q: flash_attn.flash_attn_varlen_func(
        q, *PACKED[1:], ENDS, KEY_ENDS, 18, 18, causal=True), PACKED[0]),
    "flash_attn_varlen_func of equal lengths": (lambda q: flash_attn.flash_attn_varlen_func(
        q, *PACKED[1:], ENDS, ENDS, 18, 18, causal=True, alibi_slopes=torch.tensor([0.5, 0.2])), PACKED[0]),
    "rope": (lambda q: ROPE.apply(q, positions=3), Q),
    "rope at given positions": (lambda q: ROPE.apply(q, torch.arange(9) * 2, layout="blhd"), FLASH[0]),
    "learned": (lambda table: rapt.positions.learned_positions(table, 5, batch=2), Q[0, 0]),
    "axial": (lambda rows: rapt.positions.axial_positions(rows, K[0, 0], 5, batch=2), Q[0, 0]),
    "local": (lambda q: rapt.attend_reformer_local(q, K, V, chunk=4, causal=True), Q),
    "bigbird": (lambda q: rapt.attend_bigbird(q, K, V, block=3), Q),
    "longformer": (lambda q: rapt.attend_longformer(q, *SIX[1:], window=2, classes=[2] + 8 * [1]), SIX[0]),
    "lsh": (lambda q: rapt.attend_lsh(q, V, chunk=4, rounds=2, buckets=[4]), Q),
}
WITHOUT_GRADIENTS = {"flash_attn_with_kvcache": (over_cache, FLASH[0])}
every_door = pytest.mark.parametrize("name", DOORS)
every_graph = pytest.mark.parametrize("name", DOORS | WITHOUT_GRADIENTS)


def door(name):
    """The function, what it is traced on, and other numbers."""
    call, x = (DOORS | WITHOUT_GRADIENTS)[name]
    return call, x, torch.randn(x.shape, generator=torch.Generator().manual_seed(7))


def close(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


class Module(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *x):
        return self.call(*x)


@every_graph
def test_jit_trace_records_the_call(name):
    call, x, other = door(name)
    traced = torch.jit.trace(call, (x,))
    close(traced(other), call(other))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    close(torch.jit.load(file)(other), call(other))


@every_graph
def test_export_records_the_call(name):
    call, x, other = door(name)
    program = torch.export.export(Module(call), (x,))
    close(program.module()(other), call(other))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    close(torch.export.load(file).module()(other), call(other))


@every_graph
def test_make_fx_records_the_call(name):
    call, x, other = door(name)
    close(make_fx(call)(x)(other), call(other))


@every_graph
def test_compile_makes_one_graph(name):
    call, _, x = door(name)
    torch._dynamo.reset()
    close(torch.compile(call, fullgraph=True, backend="aot_eager")(x), call(x))


@every_door
def test_compiled_gradients_are_the_eager_ones(name):
    call, _, x = door(name)
    torch._dynamo.reset()
    mine, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    close(torch.autograd.grad((compiled(mine) ** 2).sum(), mine)[0],
          torch.autograd.grad((call(plain) ** 2).sum(), plain)[0])


@every_door
def test_torch_func_gives_the_gradients_of_backward(name):
    call, _, x = door(name)
    plain = x.clone().requires_grad_()
    out = call(plain)
    (expected,) = torch.autograd.grad((out ** 2).sum(), plain)
    close(torch.func.grad(lambda q: (call(q) ** 2).sum())(x), expected)
    found, back = torch.func.vjp(call, x)
    close(back(2 * found)[0], expected)


@every_door
def test_vmap_is_the_call_on_each_item(name):
    call, x, other = door(name)
    close(torch.vmap(call)(torch.stack([x, other])), torch.stack([call(x), call(other)]))


def per_item(call):
    return torch.vmap(torch.func.grad(lambda q: (call(q) ** 2).sum()))


@pytest.mark.parametrize("name", ["attend", "rope", "local", "longformer", "flash_attn_varlen_func"])
def test_gradients_of_each_item(name):
    call, x, other = door(name)
    one = torch.func.grad(lambda q: (call(q) ** 2).sum())
    close(per_item(call)(torch.stack([x, other])), torch.stack([one(x), one(other)]))


def test_jacrev_is_the_jacobian():
    q, k, v = operands(1, 1, 4, 2, grad=False)
    found = torch.func.jacrev(lambda q: rapt.attend(q, k, v, "causal"))(q)
    exact = torch.func.jacrev(lambda q: torch.nn.functional.scaled_dot_product_attention(
        q, k.double(), v.double(), is_causal=True))(q.double())
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


@every_door
def test_forward_mode_is_refused(name):
    """torch refuses it for its own fused kernels; a tangent of zeros would be wrong."""
    call, x, other = door(name)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(call, (x,), (other,))
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jacfwd(call)(x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward-mode"):
        call(torch.autograd.forward_ad.make_dual(x, other))


def test_second_derivatives_are_refused():
    q = Q.clone().requires_grad_()
    (dq,) = torch.autograd.grad(rapt.attend(q, K, V).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        dq.sum().backward()
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.func.jacrev(torch.func.grad(lambda q: (rapt.attend(q, K, V) ** 2).sum()))(Q)


DROPOUTS = {
    "attend": lambda q: rapt.attend(q, K, V, dropout=0.5),
    "sdpa": lambda q: rapt.scaled_dot_product_attention(q, K, V, dropout_p=0.5),
    "local": lambda q: rapt.attend_reformer_local(q, K, V, chunk=4, dropout=0.5),
    "longformer": lambda q: rapt.attend_longformer(q, K, V, window=3, dropout=0.5),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_graphs_draw_a_new_dropout_for_each_call(name):
    call = DROPOUTS[name]
    torch._dynamo.reset()
    for graph in (torch.jit.trace(call, (Q,), check_trace=False), torch.export.export(Module(call), (Q,)).module(),
                  torch.compile(call, fullgraph=True, backend="aot_eager")):
        assert not torch.equal(graph(Q), graph(Q))
        torch.manual_seed(3)
        once = graph(Q)
        torch.manual_seed(3)
        assert torch.equal(graph(Q), once)


def test_vmap_draws_as_its_randomness_says():
    both = torch.stack([Q, Q])
    call = DROPOUTS["attend"]
    same = torch.vmap(call, randomness="same")(both)
    different = torch.vmap(call, randomness="different")(both)
    assert torch.equal(same[0], same[1]) and not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="random"):
        torch.vmap(call)(both)


def test_a_compiled_dropout_has_the_gradient_of_its_own_mask():
    torch._dynamo.reset()
    compiled = torch.compile(lambda v: rapt.attend(Q, K, v, dropout=0.5), fullgraph=True, backend="aot_eager")
    v = V.clone().requires_grad_()
    out = compiled(v)  # linear in v
    (dv,) = torch.autograd.grad(out.sum(), v)
    close((dv * v).sum(), out.sum())


def test_export_takes_a_mask_of_a_batch_that_only_the_numbers_know():
    def some(x, keep):
        q = x[keep.nonzero()[:, 0]]
        return rapt.scaled_dot_product_attention(q, q, q, attn_mask=q[:, :1, :, :1] > 0)

    x = torch.randn(4, 2, 5, 8)
    program = torch.export.export(Module(some), (x, torch.tensor([1, 0, 1, 1])))
    other = torch.tensor([0, 1, 0, 1])
    close(program.module()(x, other), some(x, other))


def test_onnx_has_no_such_operator():
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match="rapt::attend"):
        torch.onnx.export(Module(DOORS["attend"][0]), (Q,), io.BytesIO(), dynamo=False)


def test_script_takes_no_such_function():
    def call(q):
        return rapt.attend(q, q, q)

    with pytest.raises(Exception, match="(?i)python|script|compile|support"):
        torch.jit.script(call)


def test_a_compiled_transform_is_refused():
    torch._dynamo.reset()
    transform = torch.func.grad(lambda q: rapt.attend(q, K, V).sum())
    with pytest.raises(Exception, match="setup_context"):
        torch.compile(transform, fullgraph=True, backend="aot_eager")(Q)


def test_a_cache_is_recorded_by_nobody():
    cache = rapt.KvCache(kv_heads=2, dim=8)
    sequence = cache.add()
    cache.append(sequence, K[:1], V[:1])

    def call(q):
        return cache.attend(q, [sequence])

    for watch in (lambda: torch.jit.trace(call, (Q[:1],)), lambda: torch.vmap(call)(Q[:1][None]),
                  lambda: make_fx(call)(Q[:1]), lambda: torch.func.jvp(call, (Q[:1],), (K[:1],))):
        with pytest.raises(RuntimeError, match="KvCache.attend: a trace, a mode or a transform"):
            watch()
    with pytest.raises(Exception, match="KvCache.append"):
        torch.jit.trace(lambda k: cache.append(sequence, k, k), (K[:1],))
    torch._dynamo.reset()
    assert torch.equal(torch.compile(call, backend="aot_eager")(Q[:1]), call(Q[:1]))  # a graph break


def test_a_cache_of_flash_attn_has_no_transform():
    with pytest.raises(RuntimeError, match="flash_attn_with_kvcache: a transform"):
        torch.vmap(over_cache)(FLASH[0][None])
    with pytest.raises(ValueError, match="flash_attn_with_kvcache.*: an operand requires gradients"):
        torch.func.grad(lambda q: over_cache(q).sum())(FLASH[0])


def test_a_traced_transformer_hears_its_input():
    transformers = pytest.importorskip("transformers")
    import rapt.integrations.transformers

    rapt.integrations.transformers.register()
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                                     intermediate_size=32, vocab_size=50)
    model = transformers.AutoModel.from_config(config, attn_implementation="rapt").eval().requires_grad_(False)

    def call(ids):
        return model(input_ids=ids).last_hidden_state

    ids, other = torch.arange(12)[None], torch.arange(20, 32)[None]
    with torch.no_grad():
        close(torch.jit.trace(call, (ids,))(other), call(other))
