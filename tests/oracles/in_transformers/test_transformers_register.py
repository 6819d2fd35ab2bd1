"""attn_implementation="rapt" against Transformers' own eager attention, tiny random models."""

import copy

import pytest
import torch
import transformers

import rapt.integrations.transformers
from close import assert_close
from rapt.integrations.transformers.register import attention_forward

rapt.integrations.transformers.register()
TINY = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "head_dim": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODERS = {
    "llama": lambda: transformers.LlamaConfig(**TINY),
    "mistral": lambda: transformers.MistralConfig(**TINY, sliding_window=7),
    "gemma2": lambda: transformers.Gemma2Config(**TINY, sliding_window=6,
                                                attn_logit_softcapping=3.0),
    "qwen3": lambda: transformers.Qwen3Config(**TINY),
    "gpt_oss": lambda: transformers.GptOssConfig(**TINY, sliding_window=6, num_local_experts=4,
                                                 num_experts_per_tok=2),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4,
                                            n_positions=128),
    "opt": lambda: transformers.OPTConfig(vocab_size=99, hidden_size=32, ffn_dim=48,
                                          num_hidden_layers=2, num_attention_heads=4,
                                          max_position_embeddings=128, word_embed_proj_dim=32),
}
ENCODERS = {
    "bert": lambda: transformers.BertConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128),
    "modernbert": lambda: transformers.ModernBertConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, max_position_embeddings=128, local_attention=8,
        global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2),
}
SEQUENCES = {
    "bart": lambda: transformers.BartConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
        max_position_embeddings=128),
    "t5": lambda: transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        decoder_start_token_id=0),
}


def pair(config, auto):
    """The same weights twice."""
    torch.manual_seed(0)
    eager = auto.from_config(copy.deepcopy(config), attn_implementation="eager").eval()
    mine = auto.from_config(config, attn_implementation="rapt").eval()
    mine.load_state_dict(eager.state_dict())
    assert mine.config._attn_implementation == "rapt"
    assert eager.config._attn_implementation == "eager"
    return mine, eager


def tokens(*shape):
    return torch.randint(3, 99, shape, generator=torch.Generator().manual_seed(1))


def padding(side, length):
    mask = torch.ones(2, length, dtype=torch.long)
    if side == "right":
        mask[1, -5:] = 0
    if side == "left":
        mask[1, :5] = 0
    if side == "holes":
        mask[1, 4:7] = 0
    return mask


def assert_same(mine, eager, real, **inputs):
    """Outputs at real tokens and gradients of all parameters."""
    a, b = mine(**inputs)[0], eager(**inputs)[0]
    assert_close(a[real], b[real], roundings=64)
    a[real].square().sum().backward()
    b[real].square().sum().backward()
    size = max(p.grad.abs().max() for p in eager.parameters() if p.grad is not None)
    for (name, x), y in zip(mine.named_parameters(), eager.parameters()):
        if y.grad is not None:
            assert (x.grad - y.grad).abs().max() < 1e-4 * size, name


@pytest.mark.parametrize("side", ["none", "right", "left", "holes"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name, side):
    mine, eager = pair(DECODERS[name](), transformers.AutoModelForCausalLM)
    mask = padding(side, 20)
    assert_same(mine, eager, mask.bool(), input_ids=tokens(2, 20), attention_mask=mask)


@pytest.mark.parametrize("name", DECODERS)
def test_generation_with_a_cache(name):
    mine, eager = pair(DECODERS[name](), transformers.AutoModelForCausalLM)
    how = {"input_ids": tokens(2, 12), "attention_mask": padding("left", 12), "max_new_tokens": 12,
           "do_sample": False, "pad_token_id": 0, "eos_token_id": None,
           "return_dict_in_generate": True, "output_logits": True}
    a, b = mine.generate(**how), eager.generate(**how)
    assert torch.equal(a.sequences, b.sequences)
    for x, y in zip(a.logits, b.logits):
        assert_close(x, y, roundings=64)


@pytest.mark.parametrize("side", ["none", "right", "left", "holes"])
@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, side):
    mine, eager = pair(ENCODERS[name](), transformers.AutoModel)
    mask = padding(side, 20)
    assert_same(mine, eager, mask.bool(), input_ids=tokens(2, 20), attention_mask=mask)


@pytest.mark.parametrize("side", ["none", "right", "holes"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_encoder_decoders(name, side):
    mine, eager = pair(SEQUENCES[name](), transformers.AutoModelForSeq2SeqLM)
    everything = torch.ones(2, 11, dtype=torch.bool)
    assert_same(mine, eager, everything, input_ids=tokens(2, 20), decoder_input_ids=tokens(2, 11),
                attention_mask=padding(side, 20))


def test_weights_on_request():
    mine, eager = pair(DECODERS["mistral"](), transformers.AutoModelForCausalLM)
    inputs = {"input_ids": tokens(2, 20), "attention_mask": padding("right", 20)}
    a = mine(**inputs, output_attentions=True).attentions
    b = eager(**inputs, output_attentions=True).attentions
    for x, y in zip(a, b, strict=True):
        assert_close(x, y, roundings=64)


def test_what_is_not_understood_is_refused():
    mine, _ = pair(DECODERS["llama"](), transformers.AutoModelForCausalLM)
    with pytest.raises(ValueError, match="cu_seq_lens_q"):
        mine(input_ids=tokens(1, 6), cu_seq_lens_q=torch.tensor([0, 6]))


def test_sinks_that_are_not_sent_are_refused():
    from rapt.integrations.transformers.register import attention_forward

    module = torch.nn.Module()
    module.sinks = torch.nn.Parameter(torch.zeros(2))
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="Module has sinks and does not send them"):
        attention_forward(module, x, x, x, None)


def test_dropout_is_for_training_only():
    from rapt.integrations.transformers.register import attention_forward

    module, x = torch.nn.Module().eval(), torch.randn(1, 2, 3, 4)
    once, again = (attention_forward(module, x, x, x, None, dropout=rate)[0] for rate in (0.0, 0.9))
    assert torch.equal(once, again)


@pytest.mark.parametrize("name", ["bloom", "longformer", "sam"])
def test_models_with_attention_of_their_own_are_refused_by_name(name):
    config = transformers.CONFIG_MAPPING[name]()
    with torch.device("meta"), pytest.raises(ValueError, match="(Bloom|Longformer|Sam).* computes"):
        transformers.AutoModel.from_config(config, attn_implementation="rapt")


def test_a_part_of_a_refused_model_may_have_it():
    with torch.device("meta"):
        model = transformers.AutoModelForSpeechSeq2Seq.from_config(
            transformers.GraniteSpeechConfig(),
            attn_implementation={"": "eager", "text_config": "rapt"})
    assert model.config.text_config._attn_implementation == "rapt"


def test_a_model_without_padding_has_no_mask_where_eager_attention_has_none():
    """Informer's encoder halves its length between layers and takes no mask of another length."""
    config = transformers.InformerConfig(
        prediction_length=4, context_length=32, lags_sequence=[1, 2], d_model=16, encoder_layers=2,
        decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=16,
        decoder_ffn_dim=16, num_time_features=1)
    mine, eager_model = pair(config, transformers.AutoModel)
    draw = torch.Generator().manual_seed(1)
    given = {"past_values": torch.randn(2, 34, generator=draw),
             "past_time_features": torch.randn(2, 34, 1, generator=draw),
             "past_observed_mask": torch.ones(2, 34),
             "future_values": torch.randn(2, 4, generator=draw),
             "future_time_features": torch.randn(2, 4, 1, generator=draw)}
    with torch.no_grad():
        found = []
        for model in (mine, eager_model):
            torch.manual_seed(3)  # it samples keys
            found.append(model(**given).last_hidden_state)
    assert_close(*found, roundings=64)


@pytest.mark.parametrize("sent", ["image_sizes", "input_ids", "max_new_tokens", "num_beams"])
def test_what_says_nothing_about_attention_is_taken(sent):
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    module = torch.nn.Module().eval()
    plain = attention_forward(module, q, k, v, None)[0]
    assert torch.equal(attention_forward(module, q, k, v, None, **{sent: torch.ones(1)})[0], plain)
