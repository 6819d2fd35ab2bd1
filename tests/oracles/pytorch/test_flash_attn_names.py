"""rapt.compat.flash_attn against its documented meaning, written out in PyTorch."""

import math

import pytest
import torch

from close import assert_close, assert_same_gradients, operands
from rapt.compat.flash_attn import (flash_attn_func, flash_attn_varlen_func,
                                    flash_attn_with_kvcache)


def reference(q, k, v, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
              softmax_scale=None):
    """[batch, tokens, heads, dim] in f64, bottom right corner."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    i = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    j = torch.arange(k.shape[2])
    z = q @ k.mT * (softmax_scale or 1 / math.sqrt(q.shape[3]))
    if softcap:
        z = softcap * torch.tanh(z / softcap)
    if alibi_slopes is not None:
        z = z - alibi_slopes.double().reshape(-1, q.shape[1], 1, 1) * (i - j).abs()
    left, right = window_size
    hidden = (j > i) if causal else torch.zeros_like(j > i)
    hidden = hidden | (j < i - left) if left >= 0 else hidden
    hidden = hidden | (j > i + right) if right >= 0 else hidden
    p = z.masked_fill(hidden, -math.inf).softmax(-1).nan_to_num(0.0)
    return (p @ v).transpose(1, 2)


HOWS = {"plain": {}, "causal": {"causal": True}, "window": {"window_size": (5, 3)},
        "causal window": {"causal": True, "window_size": (9, 9)}, "cap": {"softcap": 4.0},
        "slopes": {"causal": True, "alibi_slopes": torch.rand(4)},
        "slopes by item": {"alibi_slopes": torch.rand(2, 4)}, "scale": {"softmax_scale": 0.3}}


@pytest.mark.parametrize("queries, keys", [(30, 30), (11, 30), (30, 11)])
@pytest.mark.parametrize("name", HOWS)
def test_flash_attn_func(name, queries, keys):
    (q,) = operands(2, queries, 4, 16, count=1)
    k, v = operands(2, keys, 2, 16, count=2, seed=1)
    mine, exact = flash_attn_func(q, k, v, **HOWS[name]), reference(q, k, v, **HOWS[name])
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))


@pytest.mark.parametrize("name", [n for n in HOWS if n != "slopes by item"])
@pytest.mark.parametrize("key_lengths", [[5, 20, 9], [9, 20, 30]])
def test_flash_attn_varlen_func(name, key_lengths):
    lengths = [5, 20, 9]
    ends, key_ends = (torch.tensor([0, *x]).cumsum(0).int() for x in (lengths, key_lengths))
    (q,) = operands(sum(lengths), 4, 16, count=1)
    k, v = operands(sum(key_lengths), 2, 16, count=2, seed=1)
    mine = flash_attn_varlen_func(q, k, v, ends, key_ends, 20, max(key_lengths), **HOWS[name])
    exact = torch.cat([
        reference(q[None, ends[i]:ends[i + 1]], k[None, key_ends[i]:key_ends[i + 1]],
                  v[None, key_ends[i]:key_ends[i + 1]], **HOWS[name])[0] for i in range(3)])
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))


@pytest.mark.parametrize("interleaved", [False, True])
def test_flash_attn_with_kvcache(interleaved):
    k_cache, v_cache = operands(3, 40, 2, 16, count=2, grad=False)
    (q,) = operands(2, 3, 4, 16, count=1, seed=1, grad=False)
    k, v = operands(2, 3, 2, 16, count=2, seed=2, grad=False)
    angle = torch.arange(40)[:, None] * 0.3 ** torch.arange(4)
    held, slots = [10, 20], [2, 0]
    before = k_cache.clone()

    def rotate(x, at):
        c, s = angle[at:at + 3, None].cos(), angle[at:at + 3, None].sin()
        pairs = x[..., :8].unflatten(-1, (4, 2) if interleaved else (2, 4))
        a, b = pairs.unbind(-1 if interleaved else -2)
        turned = torch.stack([a * c - b * s, a * s + b * c], -1 if interleaved else -2)
        return torch.cat([turned.flatten(-2), x[..., 8:]], -1)

    out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, angle.cos(), angle.sin(),
                                  cache_seqlens=torch.tensor(held), cache_batch_idx=slots,
                                  causal=True, rotary_interleaved=interleaved)
    for i, (slot, at) in enumerate(zip(slots, held)):
        keys = torch.cat([before[slot, :at], rotate(k[i], at)])[None]
        assert_close(k_cache[slot, :at + 3], keys[0])
        exact = reference(rotate(q[i], at)[None], keys, v_cache[slot:slot + 1, :at + 3], causal=True)
        assert_close(out[i:i + 1], exact)
    assert torch.equal(k_cache[1], before[1])


def test_pages_of_others_are_refused():
    q, k, v = operands(1, 3, 2, 8, grad=False)
    with pytest.raises(ValueError, match="block_table"):
        flash_attn_with_kvcache(q, k, v, block_table=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="slots"):
        flash_attn_with_kvcache(q, k, v, k, v, cache_seqlens=1)


ENDS = {"no zero first": [2, 5, 8], "rows left over": [0, 3, 6], "more than the rows": [0, 3, 9],
        "falling": [0, 5, 3, 8], "empty": []}


@pytest.mark.parametrize("how", ["eager", "numpy", "compiled", "gradients"])
@pytest.mark.parametrize("name", ENDS)
def test_cumulative_lengths_cover_all_rows(name, how):
    x = operands(8, 2, 8, count=1, grad=how == "gradients")[0]
    good, bad = (torch.tensor(ends, dtype=torch.int32) for ends in ([0, 3, 8], ENDS[name]))
    call = flash_attn_varlen_func
    if how == "numpy":
        x, good, bad = x.numpy(), good.numpy(), bad.numpy()
    if how == "compiled":
        torch._dynamo.reset()
        call = torch.compile(call, backend="eager", fullgraph=True)
    call(x, x, x, good, good, 8, 8)
    with pytest.raises(ValueError, match="cu_seqlens_q.*begin with 0, never decrease and end with the 8 rows of q"):
        call(x, x, x, bad, good, 9, 9)
    with pytest.raises(ValueError, match="cu_seqlens_k.*begin with 0, never decrease and end with the 8 rows of k"):
        call(x, x, x, good, bad, 9, 9)


@pytest.mark.parametrize("given", [{"cache_seqlens": -1}, {"cache_seqlens": [3, -1]}, {"cache_seqlens": [3, 7]},
                                   {"cache_seqlens": [3]}, {"cache_batch_idx": [0, 2]}, {"cache_batch_idx": [-1, 0]},
                                   {"cache_leftpad": [0, -2]}, {"cache_leftpad": [0]}])
def test_cache_lengths_are_within_the_cache(given):
    q, k, v = operands(2, 6, 2, 8, grad=False)
    before = k.clone(), v.clone()
    torch._dynamo.reset()  # so that no limit of recompilations is met
    named = {name: torch.tensor(x, dtype=torch.int32) for name, x in given.items()}
    for call in (flash_attn_with_kvcache, torch.compile(flash_attn_with_kvcache, backend="eager", fullgraph=True)):
        with pytest.raises(ValueError, match=f"expected 2 numbers from 0 to|{next(iter(given))}|at most the 6 slots"):
            call(q[:, :1], k, v, **named)
    assert torch.equal(k, before[0]) and torch.equal(v, before[1])


@pytest.mark.parametrize("new", [False, True])
def test_a_cache_under_autocast_gives_the_type_of_autocast(new):
    q, k, v = operands(2, 6, 2, 8, grad=False)
    added = {"k": k[:, :1], "v": v[:, :1], "cache_seqlens": torch.tensor([4, 2])} if new else {}

    def call(q):
        return flash_attn_with_kvcache(q, k.clone(), v.clone(), **added, causal=True, return_softmax_lse=True)

    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    plain = call(q[:, :1])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        eager, graph = call(q[:, :1]), compiled(q[:, :1])
    assert eager[0].dtype == graph[0].dtype == torch.bfloat16
    assert torch.equal(eager[0], graph[0]) and torch.equal(eager[1], graph[1])
    assert_close(eager[0], plain[0], torch.bfloat16)
    assert torch.equal(compiled(q[:, :1])[0], plain[0])


@pytest.mark.parametrize("name", ["q", "k_cache", "v_cache", "k", "v", "alibi_slopes"])
def test_a_cache_refuses_operands_that_learn(name):
    q, k, v = operands(1, 6, 2, 8, grad=False)
    given = {"q": q[:, :1], "k_cache": k, "v_cache": v, "k": k[:, :1].clone(), "v": v[:, :1].clone(),
             "alibi_slopes": torch.ones(2)}
    given[name] = given[name].clone().requires_grad_()

    def call(given):
        return flash_attn_with_kvcache(**given, cache_seqlens=2)

    with pytest.raises(ValueError, match="flash_attn_with_kvcache: an operand requires gradients"):
        call(given)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="an operand requires gradients"):
        torch.compile(call, backend="eager", fullgraph=True)(given)
    with torch.no_grad():
        call(given)
