"""The mask that models get under attn_implementation="rapt": a tensor to them, a pattern to rapt."""

import ctypes

import numpy as np
import pytest
import torch
import transformers
from transformers import masking_utils

import rapt.integrations.transformers
from close import assert_close
from rapt.integrations.transformers.masks import rapt_mask
from rapt.integrations.transformers.pattern_mask import PatternMask
from rapt.integrations.transformers.register import attention_forward
from test_transformers_register import DECODERS, padding, pair, tokens

rapt.integrations.transformers.register()
CAUSAL = masking_utils.causal_mask_function
WINDOW = masking_utils.sliding_window_causal_mask_function(5)


def packed(function):
    positions = torch.tensor([[*range(7), *range(13)], [*range(12), *range(8)]])
    return masking_utils.packed_sequence_compatibility_function(
        function, positions, masking_utils.find_packed_sequence_indices(positions))


def chunked(*padding):
    return masking_utils.chunked_causal_mask_function(6, torch.tensor(padding))


# Lengths of queries and slots, offsets of both, mask function, padding.
MASKS = {
    "causal": (20, 20, 0, 0, CAUSAL, "none"),
    "causal, padded left": (20, 20, 0, 0, CAUSAL, "left"),
    "causal, padded right": (20, 20, 0, 0, CAUSAL, "right"),
    "window": (20, 20, 0, 0, WINDOW, "none"),
    "window, padded right": (20, 20, 0, 0, WINDOW, "right"),
    "decode": (1, 20, 19, 0, CAUSAL, "left"),
    "decode in a static cache": (1, 32, 19, 0, CAUSAL, "left"),
    "prefill of a static cache": (12, 32, 8, 0, WINDOW, "left"),
    "a rolling cache": (1, 8, 19, 12, WINDOW, "left"),
    "full": (20, 20, 0, 0, masking_utils.bidirectional_mask_function, "left"),
    "a window to both sides": (
        20, 20, 0, 0, masking_utils.sliding_window_bidirectional_mask_function(3), "left"),
    "packed": (20, 20, 0, 0, packed(CAUSAL), None),
    "packed windows": (20, 20, 0, 0, packed(WINDOW), None),
    "chunks": (20, 20, 0, 0, chunked(0, 0), "none"),
    "chunks, padded left": (20, 20, 0, 0, chunked(0, 5), "left"),
    "chunks of a cache": (1, 20, 19, 0, chunked(0, 5), "left"),
}


def make(name, make_mask=rapt_mask, dtype=torch.float32):
    queries, slots, q_offset, kv_offset, function, side = MASKS[name]
    return make_mask(batch_size=2, q_length=queries, kv_length=slots, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=function, dtype=dtype,
                     attention_mask=None if side is None else padding(side, 20).bool())


def attend(mask, q, k, v):
    return attention_forward(torch.nn.Module().eval(), q, k, v, mask)[0]


def eager(mask, q, k, v):
    return ((q @ k.mT * q.shape[-1] ** -0.5 + mask).softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("name", MASKS)
def test_a_pattern_attends_as_the_numbers_do_in_every_row(name):
    mask, numbers = make(name), make(name, masking_utils.eager_mask)
    assert isinstance(mask, PatternMask)
    assert mask.shape == numbers.shape and mask.dtype == numbers.dtype
    assert torch.equal(mask + 0, numbers) and type(mask + 0) is torch.Tensor
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, n, 8) for n in (mask.shape[2], mask.shape[3], mask.shape[3]))
    assert_close(attend(mask, q, k, v), eager(numbers, q, k, v))
    assert_close(attend(numbers, q, k, v), eager(numbers, q, k, v))


def test_queries_that_are_not_the_newest_have_no_pattern():
    """A pattern puts the last query at the last key; these stand elsewhere."""
    both = masking_utils.sliding_window_bidirectional_mask_function(3)
    for function, q_offset in ((both, 3), (CAUSAL, 30)):
        mask = rapt_mask(1, 4, 20, q_offset=q_offset, mask_function=function)
        assert type(mask) is torch.Tensor
        assert torch.equal(mask, masking_utils.eager_mask(1, 4, 20, q_offset=q_offset,
                                                          mask_function=function))


CHANGES = {
    "sliced": lambda mask: mask[:, :, :, :7], "expanded": lambda mask: mask.expand(2, 4, 20, 20),
    "added": lambda mask: mask + 1, "joined": lambda mask: torch.cat([mask, mask], -1),
    "cast": lambda mask: mask.to(torch.float64), "compared": lambda mask: mask < 0,
    "copied": lambda mask: mask.clone(), "padded": lambda mask: torch.nn.functional.pad(mask, (0, 2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_mask_that_a_model_changes_is_its_numbers(name):
    found = CHANGES[name](make("window"))
    assert type(found) is torch.Tensor
    assert torch.equal(found, CHANGES[name](make("window", masking_utils.eager_mask)))


@pytest.mark.parametrize("write", [
    lambda mask: mask.masked_fill_(torch.eye(20).bool(), torch.finfo(mask.dtype).min),
    lambda mask: mask.__setitem__((slice(None), 0, 3), 0.0),
    lambda mask: mask[:, :, 5:].fill_(0.0),
    lambda mask: torch.add(mask, 1.0, out=mask),
])
def test_a_mask_that_a_model_writes_into_is_no_pattern_any_more(write):
    mask, numbers = make("window"), make("window", masking_utils.eager_mask).contiguous()
    write(mask)
    write(numbers)
    assert not mask.intact
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    assert_close(attend(mask, q, k, v), eager(numbers, q, k, v))


def zero_below_the_subclass(mask):
    with torch._C.DisableTorchFunctionSubclass():
        mask.zero_()


UNSEEN = {
    "data[...] =": lambda mask: mask.data.__setitem__(..., 0.0),
    "data =": lambda mask: setattr(mask, "data", torch.zeros(mask.shape)),
    "data of a view": lambda mask: mask[:, :, 5:].data.zero_(),
    "numpy": lambda mask: mask.numpy().fill(0.0),
    "numpy.asarray": lambda mask: np.asarray(mask).fill(0.0),
    "__dlpack__": lambda mask: torch.from_dlpack(mask.__dlpack__()).zero_(),
    "torch.from_dlpack": lambda mask: torch.from_dlpack(mask).zero_(),
    "untyped_storage": lambda mask: mask.untyped_storage().fill_(0),
    "storage": lambda mask: mask.storage().fill_(0.0),
    "data_ptr": lambda mask: ctypes.memset(mask.data_ptr(), 0, 4 * mask.numel()),
    "set_": lambda mask: mask.set_(torch.zeros(mask.shape)),
    "zero_ below the subclass": zero_below_the_subclass,
}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("name", UNSEEN)
def test_a_write_that_no_counter_sees_ends_the_pattern(name):
    mask, numbers = make("window"), make("window", masking_utils.eager_mask).contiguous()
    UNSEEN[name](mask)
    UNSEEN[name](numbers)
    assert not mask.intact
    assert torch.equal(mask + 0, numbers)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    assert_close(attend(mask, q, k, v), eager(numbers, q, k, v))


def test_a_mask_that_is_only_read_stays_a_pattern():
    mask = make("window")
    for read in (mask + 0, mask.sum(), mask.tolist(), mask.clone(), mask < 0, mask.max(-1),
                 mask.isfinite().all().item()):
        assert read is not None and mask.intact
    assert mask._dense is not None


def test_a_mask_is_read_and_written_in_inference_mode():
    numbers = make("window", masking_utils.eager_mask)
    with torch.inference_mode():
        mask = make("window")
        assert torch.equal(mask + 0, numbers) and mask.intact
        mask[:, :, 3] = 0.0
        assert not mask.intact


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_attention_weights_in_inference_mode(name):
    models = pair(DECODERS[name](), transformers.AutoModelForCausalLM)
    with torch.inference_mode():
        a, b = (model(input_ids=tokens(2, 20), attention_mask=padding("left", 20),
                      output_attentions=True) for model in models)
    assert_close(a.logits, b.logits, roundings=64)
    for x, y in zip(a.attentions, b.attentions, strict=True):
        assert_close(x, y, roundings=64)


def test_a_mask_that_stays_as_it_is_stays_a_pattern():
    mask = make("window")
    for same in (mask.to(torch.float32), mask.contiguous(), mask[:, :, :, :20], mask.detach(),
                 mask[:], mask.to(mask.device)):
        assert same is mask
    assert mask.ndim == 4 and mask.size(-1) == 20 and mask.dim() == 4 and mask.is_floating_point()
    assert mask._dense is None


@pytest.mark.parametrize("side", ["none", "left", "right"])
def test_a_mask_of_one_query_serves_all_of_them(side):
    """BridgeTower makes one row of it."""
    mask = rapt_mask(2, 1, 20, mask_function=masking_utils.bidirectional_mask_function,
                     attention_mask=padding(side, 20).bool())
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    assert_close(attend(mask, q, k, v), eager(mask + 0, q, k, v))


def test_a_mask_of_one_key_serves_all_of_them_and_no_other_number_does():
    """PP-FormulaNet's is that of an encoder of one token, over the slots of a static cache."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    full = masking_utils.bidirectional_mask_function
    mask = rapt_mask(2, 20, 1, mask_function=full)
    assert_close(attend(mask, q, k, v), eager(mask + 0, q, k, v))
    with pytest.raises(ValueError, match="a mask of 7 keys for 20 keys"):
        attend(rapt_mask(2, 20, 7, mask_function=full), q, k, v)


def test_no_mask_is_everyone_and_causal_without_one_is_refused():
    module = torch.nn.Module().eval()
    module.is_causal = True  # what SDPA would follow and eager attention does not
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    assert_close(attend(None, q, k, v), eager(torch.zeros(1), q, k, v))
    assert_close(attention_forward(module, q, k, v, None)[0], eager(torch.zeros(1), q, k, v))
    one = attention_forward(module, q[:, :, :1], k, v, None, is_causal=True)[0]
    assert_close(one, eager(torch.zeros(1), q[:, :, :1], k, v))
    with pytest.raises(ValueError, match="Module sends is_causal=True and no mask"):
        attention_forward(module, q, k, v, None, is_causal=True)


def test_indices_hide_the_other_keys():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    chosen = torch.stack([torch.randperm(20)[:6] for _ in range(40)]).view(2, 20, 6)
    chosen[..., 0] = 0
    hidden = torch.ones(2, 1, 20, 20, dtype=torch.bool).scatter(-1, chosen[:, None], False)
    numbers = make("causal", masking_utils.eager_mask).masked_fill(
        hidden, torch.finfo(torch.float32).min)
    mine = attention_forward(torch.nn.Module().eval(), q, k, v, make("causal"), indices=chosen)[0]
    assert_close(mine, eager(numbers, q, k, v))


@pytest.mark.parametrize("bias", [None, 3.0])
def test_a_row_that_sees_nothing_is_the_mean_where_its_mask_is_largest(bias):
    """As two masks added give it: the smallest number where one hides, -inf where both do."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8, requires_grad=True) for _ in range(3))
    smallest = torch.finfo(torch.float32).min
    mask = torch.where(torch.rand(2, 1, 20, 20) < 0.5, smallest, -torch.inf)
    mask[:, :, 1::2] = mask[:, :, 1::2].masked_fill(torch.rand(2, 1, 10, 20) < 0.3, -1.5)
    mask[:, :, 2, :7], mask[:, :, 2, 7:] = smallest, smallest / 1.5
    mask[:, :, 4] = smallest
    mask[:, :, ::2, 3] = smallest  # no row is -inf everywhere, which is NaN to eager attention
    position_bias = None if bias is None else bias * torch.randn(1, 4, 20, 20)
    mine = attention_forward(torch.nn.Module().eval(), q, k, v, mask, position_bias=position_bias)[0]
    scores = mask if bias is None else mask + position_bias
    theirs = eager(scores, q, k, v)
    assert_close(mine, theirs)
    seen = mask[..., 0, :].new_ones(2, 20).bool()
    seen[:, ::2] = False  # eager attention has gradients through rows that see nothing
    for x, y in zip(torch.autograd.grad(mine[seen].square().sum(), (q, k, v)),
                    torch.autograd.grad(theirs[seen].square().sum(), (q, k, v))):
        assert_close(x, y, roundings=64)


def test_a_sink_of_each_query_takes_its_share():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 20, 8) for _ in range(3))
    sinks = torch.randn(2, 4, 20, 1)
    mask = make("causal, padded left")
    mine = attention_forward(torch.nn.Module().eval(), q, k, v, mask, sinks=sinks)[0]
    z = torch.cat([q @ k.mT * 8 ** -0.5 + mask, sinks], -1).softmax(-1)[..., :-1]
    assert_close(mine, (z @ v).transpose(1, 2))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", DECODERS)
def test_generation_with_a_static_cache(name, beams):
    mine, eager_model = pair(DECODERS[name](), transformers.AutoModelForCausalLM)
    how = {"input_ids": tokens(2, 12), "attention_mask": padding("left", 12), "max_new_tokens": 8,
           "do_sample": False, "pad_token_id": 0, "eos_token_id": None, "num_beams": beams,
           "cache_implementation": "static", "return_dict_in_generate": True,
           "output_logits": True}
    a, b = mine.generate(**how), eager_model.generate(**how)
    assert torch.equal(a.sequences, b.sequences)
    for x, y in zip(a.logits, b.logits, strict=True):
        assert_close(x, y, roundings=64)


def test_a_compiled_model_generates_with_a_static_cache():
    mine, eager_model = pair(DECODERS["gemma2"](), transformers.AutoModelForCausalLM)
    how = {"input_ids": tokens(2, 8), "attention_mask": padding("left", 8), "max_new_tokens": 6,
           "do_sample": False, "pad_token_id": 0, "eos_token_id": None,
           "cache_implementation": "static"}
    expected = eager_model.generate(**how)
    mine.forward = torch.compile(mine.forward, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=False, recompile_limit=4,
                                    fail_on_recompile_limit_hit=True):
        assert torch.equal(mine.generate(**how), expected)


def test_checkpointed_activations_keep_the_mask():
    mine, eager_model = pair(DECODERS["mistral"](), transformers.AutoModelForCausalLM)
    mask = padding("left", 20)
    for model in (mine, eager_model):
        model.train().activation_checkpointing_enable()
        out = model(input_ids=tokens(2, 20), attention_mask=mask).logits[mask.bool()]
        out.square().sum().backward()
    for x, y in zip(mine.parameters(), eager_model.parameters(), strict=True):
        assert_close(x.grad, y.grad, roundings=256)


def test_custom_masks_with_four_axes():
    mine, eager_model = pair(DECODERS["llama"](), transformers.AutoModelForCausalLM)
    seen = torch.rand(2, 1, 20, 20, generator=torch.Generator().manual_seed(4)) < 0.5
    seen = (seen | torch.eye(20).bool()).tril()
    numbers = torch.zeros(seen.shape).masked_fill_(~seen, torch.finfo(torch.float32).min)
    a, b = (m(input_ids=tokens(2, 20), attention_mask=numbers).logits for m in (mine, eager_model))
    assert_close(a, b, roundings=64)
    assert_close(mine(input_ids=tokens(2, 20), attention_mask=seen).logits, b, roundings=64)
