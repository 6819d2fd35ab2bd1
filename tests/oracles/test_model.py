"""Whole models against Transformers with the same weights: hidden states, loss and all gradients.

Theirs run in double. Ours may differ by 64 roundings for each layer, of the largest number."""

import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("RAPT_MODEL_TOOL", ROOT / "build/release/bin/model_tool"))
VOCABULARY, WIDTH, FFN, LAYERS, HEADS = 61, 48, 80, 3, 4

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built")


def toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


class Ours:
    """A config, weights with some noise, and what the tool makes of tokens."""

    def __init__(self, folder, **config):
        self.folder = folder
        config = {"vocabulary": VOCABULARY, "width": WIDTH, "heads": HEADS, "ffn": FFN,
                  "layers": LAYERS, "max_tokens": 64, "seed": 3} | config
        lines = [f"{key} = {toml(value)}" for key, value in config.items()]
        (folder / "model.toml").write_text("\n".join(["[model]", *lines, ""]))
        self.run("init", "first.safetensors")
        torch.manual_seed(1)
        self.weights = {name: x + (0.2 if x.dim() == 1 else 0.05) * torch.randn(x.shape)
                        for name, x in load_file(folder / "first.safetensors").items()}
        save_file(self.weights, folder / "noisy.safetensors")

    def run(self, verb, *files):
        paths = [str(self.folder / file) for file in ("model.toml", *files)]
        subprocess.run([TOOL, verb, *paths], check=True)

    def answer(self, tokens, targets, sources=None):
        parts = {"tokens": tokens, "targets": targets, "sources": sources}
        lines = [f"{name} {' '.join(map(str, rows[item].tolist()))}\n" for item in range(len(tokens))
                 for name, rows in parts.items() if rows is not None]
        (self.folder / "tokens.txt").write_text("".join(lines))
        self.run("answer", "noisy.safetensors", "tokens.txt", "answer.safetensors")
        answer = load_file(self.folder / "answer.safetensors")
        gradients = {name.removeprefix("gradient."): x for name, x in answer.items()
                     if name.startswith("gradient.")}
        return answer["hidden"], answer["loss"].item(), gradients


def ids(items, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (items, tokens), generator=generator)


def batch():
    targets = ids(2, 40, 2)
    targets[:, 5::9] = -100
    return ids(2, 40, 1), targets


def assert_within_bound(what, mine, theirs, layers):
    size = theirs.abs().max().item()
    error = (mine.double() - theirs.reshape(mine.shape)).abs().max().item()
    assert error <= 64 * layers * 2**-24 * size, f"{what}: off by {error}, the largest is {size}"


def compare(ours, theirs, pairs, hidden_of, tokens, targets, sources=None, layers=LAYERS):
    """pairs: our name to [(a parameter of theirs, how it lies in ours)], concatenated by rows."""
    with torch.no_grad():
        for name, parts in pairs.items():
            start = 0
            for parameter, transposed in parts:
                rows = parameter.shape[1] if transposed else parameter.shape[0]
                mine = ours.weights[name][start:start + rows]
                parameter.copy_(mine.T if transposed else mine)
                start += rows
            assert start == ours.weights[name].shape[0], name
    assert set(pairs) == set(ours.weights)
    theirs = theirs.double().eval()
    hidden, head = hidden_of(theirs)
    loss = torch.nn.functional.cross_entropy((hidden @ head.T).flatten(0, 1), targets.flatten())
    loss.backward()
    mine, mine_loss, gradients = ours.answer(tokens, targets, sources)
    assert_within_bound("hidden", mine, hidden.detach(), layers)
    assert abs(mine_loss - loss.item()) <= 1e-6 * loss.item()
    for name, parts in pairs.items():
        expected = torch.cat([(p.grad.T if transposed else p.grad) for p, transposed in parts])
        assert_within_bound(name, gradients[name], expected, layers)


@pytest.fixture(autouse=True)
def stay_in_double(monkeypatch):
    """Norms, softmaxes and rotations of theirs go through f32 whatever the model is."""
    to = torch.Tensor.to

    def to_no_less(x, *arguments, **named):
        down = torch.float32 in (*arguments, named.get("dtype")) and x.dtype == torch.float64
        return x if down else to(x, *arguments, **named)

    monkeypatch.setattr(torch.Tensor, "to", to_no_less)
    monkeypatch.setattr(torch.Tensor, "float", lambda x: to_no_less(x, torch.float32))


def plain(*parameters):
    return [(parameter, False) for parameter in parameters]


def norm_pairs(name, norm):
    pairs = {f"{name}.weight": plain(norm.weight)}
    return pairs | ({f"{name}.bias": plain(norm.bias)} if getattr(norm, "bias", None) is not None else {})


def linear_pairs(name, *linears):
    pairs = {f"{name}.weight": plain(*(x.weight for x in linears))}
    return pairs | ({f"{name}.bias": plain(*(x.bias for x in linears))}
                    if linears[0].bias is not None else {})


def convolution_pairs(name, layer):
    """GPT-2 stores [in, out]."""
    return {f"{name}.weight": [(layer.weight, True)], f"{name}.bias": plain(layer.bias)}


def test_gpt2(tmp_path):
    ours = Ours(tmp_path, kind="decoder", positions="learned")
    theirs = transformers.GPT2Model(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=FFN))
    pairs = {"embedding.weight": plain(theirs.wte.weight), "positions.weight": plain(theirs.wpe.weight)}
    for i, block in enumerate(theirs.h):
        layer = f"decoder.layers.{i}"
        pairs |= norm_pairs(f"{layer}.attention.norm", block.ln_1)
        pairs |= convolution_pairs(f"{layer}.attention.qkv", block.attn.c_attn)
        pairs |= convolution_pairs(f"{layer}.attention.out", block.attn.c_proj)
        pairs |= norm_pairs(f"{layer}.ffn.norm", block.ln_2)
        pairs |= convolution_pairs(f"{layer}.ffn.up", block.mlp.c_fc)
        pairs |= convolution_pairs(f"{layer}.ffn.down", block.mlp.c_proj)
    pairs |= norm_pairs("decoder.norm", theirs.ln_f)
    tokens, targets = batch()
    compare(ours, theirs, pairs, lambda m: (m(tokens).last_hidden_state, m.wte.weight), tokens, targets)


def llama_like(ours, theirs, tokens, targets):
    pairs = {"embedding.weight": plain(theirs.model.embed_tokens.weight),
             "head.weight": plain(theirs.lm_head.weight)}
    for i, block in enumerate(theirs.model.layers):
        layer, attention = f"decoder.layers.{i}", block.self_attn
        pairs |= norm_pairs(f"{layer}.attention.norm", block.input_layernorm)
        pairs |= linear_pairs(f"{layer}.attention.qkv", attention.q_proj, attention.k_proj,
                              attention.v_proj)
        if hasattr(attention, "q_norm"):
            pairs |= norm_pairs(f"{layer}.attention.query_norm", attention.q_norm)
            pairs |= norm_pairs(f"{layer}.attention.key_norm", attention.k_norm)
        pairs |= linear_pairs(f"{layer}.attention.out", attention.o_proj)
        pairs |= norm_pairs(f"{layer}.ffn.norm", block.post_attention_layernorm)
        pairs |= linear_pairs(f"{layer}.ffn.up", block.mlp.gate_proj, block.mlp.up_proj)
        pairs |= linear_pairs(f"{layer}.ffn.down", block.mlp.down_proj)
    pairs |= norm_pairs("decoder.norm", theirs.model.norm)
    compare(ours, theirs, pairs, lambda m: (m.model(tokens).last_hidden_state, m.lm_head.weight), tokens,
            targets)


LLAMA = {"kind": "decoder", "norm": "rms", "gated": True, "activation": "silu", "biases": "none",
         "tied": False, "kv_heads": 2}
LLAMA_THEIRS = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": FFN,
                "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
                "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def test_llama(tmp_path):
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_THEIRS))
    llama_like(Ours(tmp_path, **LLAMA), theirs, *batch())


def test_mistral_with_a_window(tmp_path):
    theirs = transformers.MistralForCausalLM(transformers.MistralConfig(sliding_window=9, head_dim=12,
                                                                        **LLAMA_THEIRS))
    llama_like(Ours(tmp_path, patterns=["causal & window(8, 0)"], **LLAMA), theirs, *batch())


def test_qwen3_with_normed_queries_and_keys(tmp_path):
    theirs = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(head_dim=20, **LLAMA_THEIRS))
    llama_like(Ours(tmp_path, head_dim=20, qk_norm=True, **LLAMA), theirs, *batch())


def test_bert(tmp_path):
    ours = Ours(tmp_path, kind="encoder", positions="learned", norm_place="after", activation="gelu",
                embedding_norm=True, patterns=["full"])
    theirs = transformers.BertModel(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=FFN, max_position_embeddings=64, layer_norm_eps=1e-5, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, pad_token_id=None), add_pooling_layer=False)
    torch.nn.init.zeros_(theirs.embeddings.token_type_embeddings.weight)  # we have none
    embeddings = theirs.embeddings
    pairs = {"embedding.weight": plain(embeddings.word_embeddings.weight),
             "positions.weight": plain(embeddings.position_embeddings.weight)}
    pairs |= norm_pairs("embedding.norm", embeddings.LayerNorm)
    for i, block in enumerate(theirs.encoder.layer):
        layer, attention = f"encoder.layers.{i}", block.attention
        pairs |= linear_pairs(f"{layer}.attention.qkv", attention.self.query, attention.self.key,
                              attention.self.value)
        pairs |= linear_pairs(f"{layer}.attention.out", attention.output.dense)
        pairs |= norm_pairs(f"{layer}.attention.norm", attention.output.LayerNorm)
        pairs |= linear_pairs(f"{layer}.ffn.up", block.intermediate.dense)
        pairs |= linear_pairs(f"{layer}.ffn.down", block.output.dense)
        pairs |= norm_pairs(f"{layer}.ffn.norm", block.output.LayerNorm)
    tokens, targets = batch()
    compare(ours, theirs, pairs,
            lambda m: (m(tokens).last_hidden_state, m.embeddings.word_embeddings.weight), tokens, targets)


def t5_layer_pairs(layer, block):
    attention = block.layer[0]
    pairs = norm_pairs(f"{layer}.attention.norm", attention.layer_norm)
    pairs |= linear_pairs(f"{layer}.attention.qkv", *(getattr(attention.SelfAttention, x) for x in "qkv"))
    pairs |= linear_pairs(f"{layer}.attention.out", attention.SelfAttention.o)
    if len(block.layer) == 3:
        cross = block.layer[1]
        pairs |= norm_pairs(f"{layer}.cross_attention.norm", cross.layer_norm)
        pairs |= linear_pairs(f"{layer}.cross_attention.query", cross.EncDecAttention.q)
        pairs |= linear_pairs(f"{layer}.cross_attention.key_value", cross.EncDecAttention.k,
                              cross.EncDecAttention.v)
        pairs |= linear_pairs(f"{layer}.cross_attention.out", cross.EncDecAttention.o)
    transform = block.layer[-1]
    pairs |= norm_pairs(f"{layer}.ffn.norm", transform.layer_norm)
    pairs |= linear_pairs(f"{layer}.ffn.up", transform.DenseReluDense.wi_0, transform.DenseReluDense.wi_1)
    return pairs | linear_pairs(f"{layer}.ffn.down", transform.DenseReluDense.wo)


def test_t5(tmp_path):
    ours = Ours(tmp_path, kind="encoder-decoder", encoder_layers=LAYERS, positions="t5", norm="rms",
                gated=True, biases="none", scale="value", scale_number=1.0, head_dim=10,
                epsilon=1e-6)
    theirs = transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=10, d_ff=FFN, num_layers=LAYERS, num_heads=HEADS,
        feed_forward_proj="gated-gelu", dropout_rate=0,
        layer_norm_epsilon=1e-6))
    pairs = {"embedding.weight": plain(theirs.shared.weight)}
    for name, stack in (("encoder", theirs.encoder), ("decoder", theirs.decoder)):
        bias = stack.block[0].layer[0].SelfAttention.relative_attention_bias
        pairs |= {f"{name}.positions.weight": plain(bias.weight)}
        for i, block in enumerate(stack.block):
            pairs |= t5_layer_pairs(f"{name}.layers.{i}", block)
        pairs |= norm_pairs(f"{name}.norm", stack.final_layer_norm)
    tokens, targets = batch()
    sources = ids(2, 33, 4)

    def hidden_of(model):
        read = model.encoder(sources).last_hidden_state
        written = model.decoder(tokens, encoder_hidden_states=read).last_hidden_state
        return written, model.shared.weight

    compare(ours, theirs, pairs, hidden_of, tokens, targets, sources, layers=2 * LAYERS)
