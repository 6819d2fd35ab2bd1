"""rapt.flex_attention against PyTorch's own (uncompiled, in f64), which has no gradients on CPUs:
those come from masks written out."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.functional import scaled_dot_product_attention as sdpa

import rapt
from close import assert_close, assert_same_gradients, operands

DOCUMENTS = torch.tensor([0] * 13 + [1] * 20 + [2] * 31)


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return (q - k).abs() < 7


def same_document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def by_item(b, h, q, k):
    return k <= q + 3 * b


def by_head(b, h, q, k):
    return (k + h) % 3 != 0


CASES = {"causal": (causal, None, None), "window": (window, None, None),
         "documents": (same_document, None, None), "by item": (by_item, 2, None),
         "by head": (by_head, None, 4), "by item and head": (
             lambda b, h, q, k: (k + h) % 3 != b, 2, 4)}


@pytest.mark.parametrize("name", CASES)
def test_mask_functions(name):
    mask_mod, batch, heads = CASES[name]
    q, k, v = operands(2, 4, 64, 16)
    mine, lse = rapt.flex_attention(
        q, k, v, block_mask=rapt.create_block_mask(mask_mod, batch, heads, 64, 64), return_lse=True)
    assert rapt.flex_attention(q, k, v, return_aux=flex.AuxRequest(lse=True))[1].lse.shape == lse.shape
    theirs = flex.create_block_mask(mask_mod, batch, heads, 64, 64, device="cpu")
    doubles = [x.double() for x in (q, k, v)]
    exact, exact_lse = flex.flex_attention(*(x.detach() for x in doubles), block_mask=theirs,
                                           return_aux=flex.AuxRequest(lse=True))
    assert_close(mine, exact)
    assert_close(lse, exact_lse.lse)
    mask = flex.create_mask(mask_mod, batch, heads, 64, 64, device="cpu")
    assert_same_gradients(mine, sdpa(*doubles, attn_mask=mask), (q, k, v))


NAMED = {
    "causal": (rapt.flex.causal, causal),
    "window": (rapt.flex.sliding_window(6, 6), window),
    "documents": (rapt.flex.document_mask([13, 20, 31]), same_document),
    "prefix": (rapt.flex.prefix_lm(9), lambda b, h, q, k: (q >= k) | ((k < 9) & (q < 9))),
    "all of": (rapt.and_masks(rapt.flex.causal, rapt.flex.sliding_window(6, 6)),
               flex.and_masks(causal, window)),
    "any of": (rapt.or_masks(rapt.flex.causal, rapt.flex.sliding_window(6, 6)),
               flex.or_masks(causal, window)),
    "a name and a function": (rapt.and_masks(rapt.flex.causal, window),
                              flex.and_masks(causal, window)),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_masks(name):
    mine, theirs = NAMED[name]
    q, k, v = operands(1, 2, 64, 16, grad=False)
    out = rapt.flex_attention(q, k, v, block_mask=rapt.create_block_mask(mine, None, None, 64, 64))
    block_mask = flex.create_block_mask(theirs, None, None, 64, 64, device="cpu")
    assert_close(out, flex.flex_attention(q.double(), k.double(), v.double(), block_mask=block_mask))


def test_named_scores():
    q, k, v = operands(1, 4, 40, 16)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])

    def score(score, b, h, i, j):
        return 5 * torch.tanh(score / 5) - slopes.double()[h] * (i - j).abs()

    mine = rapt.flex_attention(q, k, v, rapt.flex.softcap(5).then(rapt.flex.alibi(slopes)))
    assert_close(mine, flex.flex_attention(*(x.detach().double() for x in (q, k, v)), score))
    i, h = torch.arange(40)[:, None], torch.arange(4)[:, None, None]
    z = score(q.double() @ k.double().mT / 4, 0, h, i, i.T)
    assert_same_gradients(mine, z.softmax(-1) @ v.double(), (q, k, v))
    with pytest.raises(ValueError, match="softcap, alibi, relative_bias"):
        rapt.flex_attention(q, k, v, score)
    with pytest.raises(ValueError, match="first"):
        rapt.flex.alibi(slopes).then(rapt.flex.softcap(5))


def test_wrong_block_masks_are_refused():
    q, k, v = operands(2, 4, 64, 16, grad=False)
    with pytest.raises(ValueError, match="broadcast"):
        rapt.flex_attention(q, k, v, block_mask=rapt.create_block_mask(causal, None, None, 32, 64))
    with pytest.raises(TypeError, match="create_block_mask"):
        rapt.flex_attention(q, k, v, block_mask=torch.ones(64, 64, dtype=torch.bool))
