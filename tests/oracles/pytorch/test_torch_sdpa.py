"""rapt against PyTorch's own attention and autograd, in f64."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

import rapt
from close import assert_close, assert_same_gradients, operands


def doubles(*tensors):
    return [x.double() for x in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_attend_equals_sdpa(dtype, causal):
    q, k, v = operands(2, 4, 100, 32, dtype=dtype)
    mine = rapt.attend(q, k, v, "causal" if causal else None)
    exact = sdpa(*doubles(q, k, v), is_causal=causal)
    assert mine.dtype == dtype
    assert_close(mine, exact, dtype)
    assert_same_gradients(mine, exact, (q, k, v), dtype)


@pytest.mark.parametrize("queries, keys", [(70, 70), (9, 70), (70, 9)])
@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 3, 4)])
def test_sdpa_takes_any_leading_axes_and_lengths(shape, queries, keys):
    (q,) = operands(*shape, queries, 16, count=1)
    k, v = operands(*shape, keys, 16, count=2, seed=1)
    for causal in (False, True):
        mine = rapt.scaled_dot_product_attention(q, k, v, is_causal=causal)
        exact = sdpa(*doubles(q, k, v), is_causal=causal)
        assert_close(mine, exact)
        assert_same_gradients(mine, exact, (q, k, v))


MASKS = {
    "random": lambda: torch.rand(20, 30) < 0.5,
    "runs": lambda: (torch.arange(20)[:, None] + 10 - torch.arange(30)).abs() < 5,
    "by item": lambda: torch.rand(2, 1, 20, 30) < 0.5,
    "by head": lambda: torch.rand(4, 20, 30) < 0.5,
    "padding": lambda: torch.arange(30) < torch.tensor([30, 7])[:, None, None, None],
    "nothing at all": lambda: torch.zeros(2, 4, 20, 30, dtype=torch.bool),
    "added": lambda: torch.randn(20, 30),
    "added, by item and head": lambda: torch.randn(2, 4, 20, 30),
    "added, rows of -inf": lambda: torch.randn(2, 1, 20, 30).masked_fill(
        torch.arange(20)[:, None] % 3 == 0, -torch.inf),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_mean_what_they_mean_to_sdpa(name):
    torch.manual_seed(3)
    mask = MASKS[name]()
    (q,) = operands(2, 4, 20, 16, count=1)
    k, v = operands(2, 4, 30, 16, count=2, seed=1)
    mine = rapt.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    exact = sdpa(*doubles(q, k, v), attn_mask=mask if mask.dtype == torch.bool else mask.double())
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))


def test_a_learned_mask_gets_its_gradient():
    q, k, v = operands(2, 4, 20, 16)
    mask = torch.randn(1, 4, 20, 20, requires_grad=True)
    mine = rapt.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_same_gradients(mine, sdpa(*doubles(q, k, v, mask)), (q, k, v, mask))


def test_grouped_heads_and_scale():
    (q,) = operands(2, 6, 33, 16, count=1)
    k, v = operands(2, 2, 33, 16, count=2, seed=1)
    mine = rapt.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True)
    exact = sdpa(*doubles(q, k, v), scale=0.3, enable_gqa=True)
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))
    with pytest.raises(ValueError, match="enable_gqa"):
        rapt.scaled_dot_product_attention(q, k, v)


def test_conflicts_are_refused():
    q, k, v = operands(1, 1, 4, 8)
    with pytest.raises(ValueError, match="one of them"):
        rapt.scaled_dot_product_attention(q, k, v, torch.ones(4, 4, dtype=torch.bool), is_causal=True)


def test_dropout_follows_torchs_seed():
    q, k, v = operands(1, 2, 50, 16)
    torch.manual_seed(5)
    once = rapt.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    again = rapt.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    torch.manual_seed(5)
    assert torch.equal(once, rapt.scaled_dot_product_attention(q, k, v, dropout_p=0.3))
    assert not torch.equal(once, again)


def test_strided_views():
    packed = torch.randn(2, 50, 3, 4, 16, requires_grad=True)  # [batch, tokens, qkv, heads, dim]
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    mine = rapt.attend(q, k, v, "causal")
    exact = sdpa(*doubles(q, k, v), is_causal=True)
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (packed,))
    backwards = torch.randn(2, 16, 4, 50).permute(0, 2, 3, 1)  # last axis not contiguous
    assert_close(rapt.attend(backwards, backwards, backwards), sdpa(*doubles(*[backwards] * 3)))


BROADCASTS = {
    "batch of keys": ((2, 3, 5, 4), (1, 3, 7, 4), (1, 3, 7, 4)),
    "batch of queries": ((1, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
    "heads of keys": ((2, 3, 5, 4), (2, 1, 7, 4), (2, 1, 7, 4)),
    "heads of queries": ((2, 1, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
    "heads of values": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 1, 7, 4)),
    "ranks": ((2, 3, 5, 4), (3, 7, 4), (7, 4)),
    "five axes": ((2, 1, 3, 5, 4), (1, 4, 3, 7, 4), (2, 4, 1, 7, 4)),
    "no channels": ((2, 3, 5, 0), (2, 3, 7, 0), (2, 3, 7, 4)),
    "no channels of values": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 0)),
    "no keys": ((2, 3, 5, 4), (2, 3, 0, 4), (2, 3, 0, 4)),
    "no batch": ((0, 3, 5, 4), (0, 3, 7, 4), (0, 3, 7, 4)),
    "no heads": ((2, 0, 5, 4), (2, 0, 7, 4), (2, 0, 7, 4)),
    "no queries": ((2, 3, 0, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
}
GROUPED = {
    "three axes": ((6, 5, 4), (2, 7, 4), (2, 7, 4)),
    "keys and values apart": ((2, 6, 5, 4), (2, 2, 7, 4), (2, 3, 7, 4)),
    "five axes": ((2, 2, 6, 5, 4), (2, 2, 2, 7, 4), (2, 1, 2, 7, 4)),
}
CASES = [(name, shapes, gqa) for cases, gqa in ((BROADCASTS, False), (GROUPED, True))
         for name, shapes in cases.items()]


@pytest.mark.parametrize("name, shapes, gqa", CASES, ids=[f"{c[0]}{' of groups' * c[2]}" for c in CASES])
def test_leading_axes_broadcast(name, shapes, gqa):
    q, k, v = (operands(*shape, count=1, seed=i)[0] for i, shape in enumerate(shapes))
    mine = rapt.scaled_dot_product_attention(q, k, v, enable_gqa=gqa)
    exact = sdpa(*doubles(q, k, v), enable_gqa=gqa)
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))
    plain = rapt.scaled_dot_product_attention(*(x.detach().numpy() for x in (q, k, v)), enable_gqa=gqa)
    assert_close(torch.from_numpy(plain), exact)


MASK_SHAPES = [((2, 3, 5, 4), (5, 1)), ((2, 3, 5, 4), (1, 7)), ((2, 3, 5, 4), (2, 1, 5, 1)), ((3, 5, 4), (3, 5, 7)),
               ((5, 4), (5, 7)), ((2, 2, 3, 5, 4), (2, 1, 1, 5, 7)), ((2, 2, 3, 5, 4), (3, 5, 1))]


@pytest.mark.parametrize("shape, mask_shape", MASK_SHAPES)
@pytest.mark.parametrize("boolean", [True, False])
def test_masks_broadcast(shape, mask_shape, boolean):
    torch.manual_seed(2)
    (q,) = operands(*shape, count=1)
    k, v = operands(*shape[:-2], 7, 4, count=2, seed=1)
    mask = torch.rand(mask_shape) > 0.3 if boolean else torch.randn(mask_shape)
    mine = rapt.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    exact = sdpa(*doubles(q, k, v), attn_mask=mask if boolean else mask.double())
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))


def test_axes_that_do_not_broadcast_are_refused():
    q, k, v = operands(2, 3, 5, 4)
    with pytest.raises(ValueError, match="leading axes"):
        rapt.scaled_dot_product_attention(q, k[:1].expand(3, -1, -1, -1), v)
    with pytest.raises(ValueError, match="enable_gqa"):
        rapt.scaled_dot_product_attention(q, k[:, :2], v[:, :2])
    with pytest.raises(ValueError, match="expected a divisor"):
        rapt.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    with pytest.raises(ValueError, match="attn_mask has shape \\[3, 1, 5, 5\\], expected to broadcast"):
        rapt.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(3, 1, 5, 5, dtype=torch.bool))
