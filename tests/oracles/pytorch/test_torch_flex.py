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


CODES = torch.tensor([[i % 3, i % 2] for i in range(64)])
PER_PAIR = {
    "a reduction": lambda b, h, q, k: (CODES[q] == CODES[k]).all(),
    "a reduction along an axis": lambda b, h, q, k: (CODES[q] == CODES[k]).any(-1),
    "a table": lambda b, h, q, k: torch.eye(64, dtype=torch.bool)[q, k] | (k < 3),
    "queries alone": lambda b, h, q, k: q > 3,
    "a constant": lambda b, h, q, k: b >= 0,
    "a name inside": lambda b, h, q, k: rapt.flex.causal(b, h, q, k) & (k != 5)
    | rapt.flex.document_mask([13, 20, 31])(b, h, q, k) | rapt.flex.prefix_lm(4)(b, h, q, k)
    | rapt.flex.sliding_window(2, 1)(b, h, q, k) & rapt.flex.noop_mask(b, h, q, k),
}


@pytest.mark.parametrize("name", PER_PAIR)
def test_a_mask_function_answers_for_one_pair(name):
    q, k, v = operands(1, 2, 64, 16, grad=False)
    out = rapt.flex_attention(q, k, v, block_mask=rapt.create_block_mask(PER_PAIR[name], None, None, 64, 64))
    mask = flex.create_mask(PER_PAIR[name], 1, 1, 64, 64, device="cpu")
    assert_close(out, sdpa(q.double(), k.double(), v.double(), attn_mask=mask))


def test_a_function_over_numpy_arrays_gets_its_indices():
    documents = DOCUMENTS.numpy()
    mine = rapt.create_block_mask(lambda b, h, q, k: documents[q] == documents[k], None, None, 64, 64)
    assert mine.patterns == rapt.create_block_mask(same_document, None, None, 64, 64).patterns


WRONG = {
    "a bool for all": (lambda b, h, q, k: True, "one bool for each pair"),
    "a number": (lambda b, h, q, k: q - k, "int64"),
    "a vector": (lambda b, h, q, k: CODES[q] == CODES[k], "one bool for each pair"),
    "one truth of numpy's": (lambda b, h, q, k: (CODES.numpy()[q] == CODES.numpy()[k]).all(), "each pair"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mask_without_an_answer_for_each_pair_is_refused(name):
    mask_mod, words = WRONG[name]
    with pytest.raises((ValueError, RuntimeError), match=words):
        rapt.create_block_mask(mask_mod, None, None, 64, 64)


def test_what_is_no_mask_function_is_refused():
    with pytest.raises(TypeError, match="mask_mod is a int"):
        rapt.create_block_mask(3, None, None, 64, 64)
    with pytest.raises(TypeError, match="at least one"):
        rapt.and_masks()
    with pytest.raises(TypeError, match="functions"):
        rapt.or_masks(causal, 3)


@pytest.mark.parametrize("mask", [None, "causal(first)"])
def test_keys_of_one_item_serve_every_query(mask):
    (q,) = operands(3, 4, 20, 8, count=1)
    k, v = operands(1, 2, 20, 8, count=2, seed=1)
    block_mask = mask and rapt.create_block_mask(mask, None, None, 20, 20)
    mine = rapt.flex_attention(q, k, v, block_mask=block_mask, enable_gqa=True)
    exact = sdpa(*(x.double() for x in (q, k, v)), is_causal=bool(mask), enable_gqa=True)
    assert_close(mine, exact)
    assert_same_gradients(mine, exact, (q, k, v))
