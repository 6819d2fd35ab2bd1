"""Models that are traced, run on fake or meta tensors, or turned into graphs: nothing of the example,
neither its length nor its padding, may stay in the graph."""

import copy

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import rapt.integrations.transformers
from close import assert_close
from rapt.integrations.transformers import accelerate
from rapt.integrations.transformers.masks import item_patterns, padding_mask
from test_transformers_accelerate import (big_bird, big_bird_pegasus, encoder_inputs, pegasus_x,
                                          reformer)
from test_transformers_register import DECODERS, ENCODERS, pair

rapt.integrations.transformers.register()
KINDS = {"llama": (DECODERS["llama"], transformers.AutoModelForCausalLM),
         "mistral": (DECODERS["mistral"], transformers.AutoModelForCausalLM),
         "bert": (ENCODERS["bert"], transformers.AutoModel)}
PADDINGS = {"none": (0, 0), "left": (4, 0), "right": (0, 3), "both": (2, 1)}


class Output(torch.nn.Module):
    """What a trace can take: tensors in, a tensor out."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        how = {"use_cache": False} if self.model.can_generate() else {}
        return self.model(input_ids=ids, attention_mask=mask, **how)[0]


def pair_of(name):
    """rapt's and the eager model, as modules that take (ids, mask)."""
    config, auto = KINDS[name]
    return [Output(model).eval() for model in pair(config(), auto)]


def given(length, padding):
    """ids, mask: the second item is padded."""
    ids = torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones(2, length, dtype=torch.long)
    before, after = PADDINGS[padding]
    mask[1, :before] = 0
    mask[1, length - after:] = 0
    return ids, mask


@pytest.mark.parametrize("traced", PADDINGS)
@pytest.mark.parametrize("name", KINDS)
def test_a_trace_serves_other_lengths_and_other_padding(name, traced):
    mine, eager = pair_of(name)
    with torch.no_grad():
        trace = torch.jit.trace(mine, given(9, traced), check_trace=False)
        for length in (9, 13):
            for padding in PADDINGS:
                expected = eager(*given(length, padding))
                assert_close(trace(*given(length, padding)), expected, roundings=64)


@pytest.mark.parametrize("name", KINDS)
def test_fake_tensors_with_padding_have_the_shapes_of_eager_attention(name):
    mine, eager = pair_of(name)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = [mode.from_tensor(x) for x in given(9, "left")]
        assert mine(*fake).shape == eager(*fake).shape


@pytest.mark.parametrize("name", KINDS)
def test_meta_tensors_with_padding_have_a_shape(name):
    mine, _ = pair_of(name)
    shape = mine(*given(9, "left")).shape
    found = mine.to("meta")(*(x.to("meta") for x in given(9, "left")))
    assert found.is_meta and found.shape == shape


@pytest.mark.parametrize("name", KINDS)
def test_a_graph_of_make_fx_serves_other_padding(name):
    mine, eager = pair_of(name)
    with torch.no_grad():
        graph = make_fx(lambda ids, mask: mine(ids, mask))(*given(9, "left"))
        for padding in PADDINGS:
            assert_close(graph(*given(9, padding)), eager(*given(9, padding)), roundings=64)


class Encoder(torch.nn.Module):
    """As Output, with the decoder's tokens where there is a decoder."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, decoder_ids):
        how = {}
        if self.model.config.is_encoder_decoder:
            how = {"decoder_input_ids": decoder_ids, "use_cache": False}
        return self.model(input_ids=ids, attention_mask=mask, return_dict=False, **how)[0]


@pytest.mark.parametrize("traced", ["none", "right"])
@pytest.mark.parametrize("make", [pegasus_x, big_bird, big_bird_pegasus])
def test_a_trace_of_an_accelerated_model_serves_other_padding(make, traced):
    torch.manual_seed(0)
    theirs = make().eval()
    # A larger encoder output, so that its padding matters behind the decoder.
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    mine = Encoder(accelerate(copy.deepcopy(theirs))).eval()
    with torch.no_grad():
        trace = torch.jit.trace(mine, tuple(encoder_inputs(160, traced).values()),
                                check_trace=False)
        for padding in ("none", "left", "right"):
            ids, mask, decoder_ids = encoder_inputs(160, padding).values()
            a, b = (model(ids, mask, decoder_ids) for model in (trace, Encoder(theirs)))
            if make is big_bird:
                a, b = a[mask.bool()], b[mask.bool()]
            assert_close(a, b, roundings=64)


class Encoded(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, ids):
        return self.encoder(input_ids=ids).last_hidden_state


def traced(function, *example):
    return torch.jit.trace(function, example, check_trace=False)


@pytest.mark.parametrize("tokens", [128, 192])
@pytest.mark.parametrize("whole", [True, False])
def test_a_trace_of_pegasus_x_says_that_it_has_one_length(whole, tokens):
    torch.manual_seed(0)
    encode = Encoded(accelerate(pegasus_x().eval()).get_encoder()).eval()
    layer, width = encode.encoder.layers[0].self_attn, encode.encoder.config.d_model

    def given(count):
        return (torch.randint(3, 99, (2, count)) if whole else torch.randn(2, count, width),)

    def attend(x):
        return layer(x, torch.ones(2, 4, width))[0]

    with torch.no_grad():
        trace = traced(encode, *given(160)) if whole else make_fx(attend)(*given(160))
        same = given(160)
        assert_close(trace(*same), (encode if whole else attend)(*same), roundings=16)
        with pytest.raises((RuntimeError, ValueError), match="PegasusXGlobalLocalAttention was traced "
                           f"with 160 tokens.*is called with {tokens}"):
            trace(*given(tokens))


@pytest.mark.parametrize("make", [big_bird, big_bird_pegasus])
def test_a_trace_of_big_bird_serves_other_lengths(make):
    torch.manual_seed(0)
    mine = Encoder(accelerate(make().eval())).eval()
    with torch.no_grad():
        trace = traced(mine, *encoder_inputs(160, "none").values())
        for tokens in (128, 192):
            given = encoder_inputs(tokens, "right").values()
            assert_close(trace(*given), mine(*given), roundings=16)


def test_padding_stays_a_tensor_where_somebody_records_the_call():
    ones = torch.ones(2, 8, dtype=torch.long)
    assert padding_mask(ones) is None and padding_mask(ones.to("meta")).shape == (2, 8)
    graph = make_fx(lambda mask: padding_mask(mask) * 1)(ones)
    padded = ones.clone()
    padded[1, 5:] = 0
    assert torch.equal(graph(padded), padded)


def test_hashed_attention_says_that_it_needs_the_numbers_of_the_padding():
    with pytest.raises(ValueError, match="accelerate: an attention_mask in a trace.*hashed"):
        make_fx(lambda mask: item_patterns(mask))(torch.ones(2, 8, dtype=torch.long))
    assert item_patterns(torch.ones(2, 8)) is None


@pytest.mark.parametrize("layer", ["local", "lsh"])
def test_a_compiled_reformer_serves_other_padding(layer):
    torch.manual_seed(0)
    theirs = reformer(False, [layer]).eval()
    mine = torch.compile(accelerate(copy.deepcopy(theirs)), backend="eager")
    for padding in ("none", "right"):
        ids, mask, _ = encoder_inputs(96, padding).values()
        with torch.no_grad():
            a, b = (model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
                    for model in (mine, theirs))
        assert_close(a[mask.bool()], b[mask.bool()], roundings=256)
