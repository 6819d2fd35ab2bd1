"""Models that are traced, run on fake or meta tensors, or turned into graphs: nothing of the example,
neither its length nor its padding, may stay in the graph."""

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import rapt.integrations.transformers
from close import assert_close
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
