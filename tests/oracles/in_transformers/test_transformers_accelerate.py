"""accelerate(model) against the same model as Transformers has it."""

import copy

import pytest
import torch
import transformers

import rapt
from close import assert_close
from rapt.integrations.transformers import accelerate

LONG = {"vocab_size": 99, "max_position_embeddings": 160, "pad_token_id": 1}


def longformer():
    return transformers.LongformerModel(transformers.LongformerConfig(
        **LONG, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        attention_window=[8, 16]))


def led():
    return transformers.LEDModel(transformers.LEDConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, attention_window=8,
        max_encoder_position_embeddings=160, max_decoder_position_embeddings=64))


REFORMER = {"vocab_size": 99, "hidden_size": 32, "num_attention_heads": 2, "attention_head_size": 16,
            "feed_forward_size": 48, "axial_pos_shape": [8, 16], "axial_pos_embds_dim": [16, 16],
            "lsh_attn_chunk_length": 16, "local_attn_chunk_length": 16,
            "max_position_embeddings": 128, "num_hashes": 2, "num_buckets": 4, "hash_seed": 0,
            "hidden_dropout_prob": 0.0, "lsh_attention_probs_dropout_prob": 0.0,
            "local_attention_probs_dropout_prob": 0.0}


def reformer(decoder, layers):
    return transformers.ReformerModel(transformers.ReformerConfig(
        **REFORMER, is_decoder=decoder, attn_layers=layers))


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("layers", [["lsh"], ["local"], ["local", "lsh"]])
@pytest.mark.parametrize("length", [12, 96, 128])
@pytest.mark.parametrize("padded", [False, True])
def test_reformer(decoder, layers, length, padded):
    torch.manual_seed(0)
    theirs = reformer(decoder, layers)
    mine = accelerate(copy.deepcopy(theirs))
    ids = torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, length, dtype=torch.long)
    if padded:
        mask[1, length - 5:] = 0
    theirs.train(length == 128)  # only whole lengths train there
    mine.train(length == 128)
    a, b = (m(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[mask.bool()]
            for m in (mine, theirs))
    assert_close(a, b, roundings=256)
    if length == 128:
        assert_same_gradients(mine, theirs, a, b)


@pytest.mark.parametrize("layer", ["local", "lsh"])
def test_reformer_in_a_ring_shorter_than_its_neighbourhood(layer):
    """Transformers counts the other chunk twice there."""
    torch.manual_seed(0)
    config = {**REFORMER, "num_hashes": 1, f"{layer}_num_chunks_after": 1}
    theirs = transformers.ReformerModel(transformers.ReformerConfig(
        **config, is_decoder=False, attn_layers=[layer])).eval()
    mine = accelerate(copy.deepcopy(theirs))
    ids = torch.randint(3, 99, (2, 32), generator=torch.Generator().manual_seed(1))
    assert_close(mine(input_ids=ids).last_hidden_state, theirs(input_ids=ids).last_hidden_state,
                 roundings=64)


@pytest.mark.parametrize("layer", ["local", "lsh"])
def test_reformer_with_holes_in_its_padding(layer):
    torch.manual_seed(0)
    theirs = reformer(False, [layer]).train()
    mine = accelerate(copy.deepcopy(theirs))
    ids = torch.randint(3, 99, (2, 128), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 128, dtype=torch.long)
    mask[0, 3:9] = mask[1, :40] = 0
    a, b = (m(input_ids=ids, attention_mask=mask).last_hidden_state for m in (mine, theirs))
    assert_close(a, b, roundings=256)
    assert_same_gradients(mine, theirs, a[mask.bool()], b[mask.bool()])


def test_big_bird_that_draws_a_block_of_its_window():
    """At 1,024 tokens Transformers may do so in the last rows, and counts it twice there."""
    torch.manual_seed(0)
    theirs = transformers.BigBirdModel(transformers.BigBirdConfig(
        vocab_size=99, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, block_size=64, num_random_blocks=3, max_position_embeddings=1024,
        attention_type="block_sparse", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)).train()
    mine = accelerate(copy.deepcopy(theirs))
    ids = torch.randint(3, 99, (1, 1024), generator=torch.Generator().manual_seed(1))
    a, b = (m(input_ids=ids).last_hidden_state for m in (mine, theirs))
    assert_close(a, b, roundings=64)


@pytest.mark.parametrize("training", [False, True])
def test_big_bird(training):
    torch.manual_seed(0)
    theirs = transformers.BigBirdModel(transformers.BigBirdConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, block_size=8, num_random_blocks=2, max_position_embeddings=256,
        attention_type="block_sparse", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    theirs.train(training)
    mine = accelerate(copy.deepcopy(theirs))
    given = inputs(160, [])
    del given["global_attention_mask"]
    real = given["attention_mask"].bool()
    a, b = (m(**given).last_hidden_state[real] for m in (mine, theirs))
    assert_close(a, b, roundings=64)
    assert_same_gradients(mine, theirs, a, b)


def counted(monkeypatch, *names):
    """How often rapt is called."""
    calls = []
    for name in names:
        def call(*args, _function=getattr(rapt, name), **kwargs):
            calls.append(1)
            return _function(*args, **kwargs)
        monkeypatch.setattr(rapt, name, call)
    return calls


@pytest.mark.parametrize("decoder", [False, True])
@pytest.mark.parametrize("length", [12, 90, 96])
def test_reformer_with_a_cache_calls_rapt_for_the_prompt(decoder, length, monkeypatch):
    """use_cache is on unless told otherwise, and 90 tokens are padded to 96."""
    torch.manual_seed(0)
    theirs = reformer(decoder, ["local", "lsh"]).eval()
    mine = accelerate(copy.deepcopy(theirs))
    calls = counted(monkeypatch, "attend", "attend_reformer_local")
    ids = torch.randint(3, 99, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        a, b = mine(input_ids=ids), theirs(input_ids=ids)
    assert len(calls) >= 2
    assert_close(a.last_hidden_state, b.last_hidden_state, roundings=256)
    for x, y in zip(a.past_buckets_states.buckets_cache, b.past_buckets_states.buckets_cache,
                    strict=True):
        assert torch.equal(x, y)


def test_reformer_goes_on_from_its_cache_and_says_so():
    torch.manual_seed(0)
    theirs = transformers.ReformerModelWithLMHead(transformers.ReformerConfig(
        **REFORMER, is_decoder=True, attn_layers=["local", "lsh"])).eval()
    mine = accelerate(copy.deepcopy(theirs))
    ids = torch.randint(3, 99, (2, 90), generator=torch.Generator().manual_seed(1))
    how = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    with pytest.warns(UserWarning, match="its cache holds buckets"):
        a = mine.generate(ids, **how)
    assert torch.equal(a, theirs.generate(ids, **how))


def big_bird():
    return transformers.BigBirdModel(transformers.BigBirdConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, block_size=8, num_random_blocks=2, max_position_embeddings=256,
        attention_type="block_sparse", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def big_bird_pegasus():
    return transformers.BigBirdPegasusModel(transformers.BigBirdPegasusConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, block_size=8,
        num_random_blocks=2, max_position_embeddings=256, attention_type="block_sparse", dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0))


def pegasus_x():
    return transformers.PegasusXModel(transformers.PegasusXConfig(
        vocab_size=99, d_model=32, encoder_layers=3, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_global_tokens=6,
        block_size=16, max_position_embeddings=256, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0))


def encoder_inputs(tokens, padding):
    draw = torch.Generator().manual_seed(1)
    mask = torch.ones(2, tokens, dtype=torch.long)
    mask[1, {"none": slice(0, 0), "left": slice(0, 9), "right": slice(-9, None)}[padding]] = 0
    return {"input_ids": torch.randint(3, 99, (2, tokens), generator=draw), "attention_mask": mask,
            "decoder_input_ids": torch.randint(3, 99, (2, 7), generator=draw)}


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("make", [big_bird_pegasus, pegasus_x])
@pytest.mark.parametrize("training", [False, True])
def test_sparse_encoders_of_sequence_models(make, padding, training, monkeypatch):
    torch.manual_seed(0)
    theirs = make().train(training)
    mine = accelerate(copy.deepcopy(theirs))
    calls = counted(monkeypatch, "attend", "attend_bigbird")
    given = encoder_inputs(157, padding)
    a, b = (m(**given).last_hidden_state for m in (mine, theirs))
    assert len(calls) >= 2
    assert_close(a, b, roundings=64)
    assert_same_gradients(mine, theirs, a, b)


@pytest.mark.parametrize("make", [longformer, big_bird, big_bird_pegasus, pegasus_x])
def test_attention_weights_are_those_of_transformers(make):
    torch.manual_seed(0)
    theirs = make().eval()
    mine = accelerate(copy.deepcopy(theirs))
    given = encoder_inputs(144, "right")
    if not theirs.config.is_encoder_decoder:
        del given["decoder_input_ids"]
    with pytest.warns(UserWarning, match="attention weights are asked for"):
        a = mine(**given, output_attentions=True)
    b = theirs(**given, output_attentions=True)
    names = [name for name in b if "attentions" in name]
    assert any(len(b[name]) for name in names)
    assert names == [name for name in a if "attentions" in name]
    for name in names:
        for x, y in zip(a[name], b[name], strict=True):
            x, y = ([t[k] for k in sorted(t)] if isinstance(t, dict) else [t] for t in (x, y))
            for one, other in zip(x, y, strict=True):
                assert_close(one, other, roundings=64)


def test_long_t5_is_refused_with_the_reason():
    with torch.device("meta"):
        model = transformers.LongT5Model(transformers.LongT5Config(num_layers=1))
    with pytest.raises(ValueError, match="LongT5LocalAttention.*position bias"):
        accelerate(model)


MODELS = {"longformer": longformer, "led": led}


def inputs(tokens, globals_):
    draw = torch.Generator().manual_seed(1)
    mask = torch.ones(2, tokens, dtype=torch.long)
    mask[1, tokens - 9:] = 0
    everywhere = torch.zeros_like(mask)
    everywhere[0, globals_] = 1
    everywhere[1, globals_[:1]] = 1
    return {"input_ids": torch.randint(3, 99, (2, tokens), generator=draw), "attention_mask": mask,
            "global_attention_mask": everywhere}


def assert_same_gradients(mine, theirs, a, b):
    a.square().sum().backward()
    b.square().sum().backward()
    size = max(p.grad.abs().max() for p in theirs.parameters() if p.grad is not None)
    for (name, x), y in zip(mine.named_parameters(), theirs.parameters()):
        if y.grad is not None:
            found = torch.zeros_like(y.grad) if x.grad is None else x.grad
            assert (found - y.grad).abs().max() < 1e-4 * size, name


@pytest.mark.parametrize("globals_", [[], [0], [0, 5, 30]])
@pytest.mark.parametrize("tokens", [48, 61])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_stay_the_same(name, tokens, globals_):
    torch.manual_seed(0)
    theirs = MODELS[name]().eval()
    mine = accelerate(copy.deepcopy(theirs))
    given = inputs(tokens, globals_)
    if name == "led":
        given["decoder_input_ids"] = given["input_ids"][:, :7]
    real = torch.ones(2, 7, dtype=torch.bool) if name == "led" else given["attention_mask"].bool()
    a, b = (model(**given).last_hidden_state[real] for model in (mine, theirs))
    assert_close(a, b, roundings=64)
    assert_same_gradients(mine, theirs, a, b)


def test_a_model_without_such_attention_is_refused():
    with pytest.raises(ValueError, match="Linear"):
        accelerate(torch.nn.Linear(2, 2))
