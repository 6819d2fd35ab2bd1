"""Folders of tiny models, written by hand."""

import json
import struct

import numpy as np

import rapt

WIDTH, VOCABULARY, LAYERS = 12, 258, 2


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": {"float32": "F32", "float16": "F16"}[x.dtype.name], "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_gpt2(made, dtype=np.float32):
    rng = np.random.default_rng(1)

    def normal(*shape):
        return (0.3 * rng.standard_normal(shape)).astype(np.float32)

    tensors = {"transformer.wte.weight": normal(VOCABULARY, WIDTH),
               "transformer.wpe.weight": normal(32, WIDTH),
               "transformer.ln_f.weight": np.ones(WIDTH, np.float32), "transformer.ln_f.bias": normal(WIDTH)}
    for i in range(LAYERS):
        name = f"transformer.h.{i}."
        for norm in ("ln_1", "ln_2"):
            tensors |= {f"{name}{norm}.weight": np.ones(WIDTH, np.float32),
                        f"{name}{norm}.bias": normal(WIDTH)}
        for linear, into, out in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                  ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):
            tensors |= {f"{name}{linear}.weight": normal(into, out), f"{name}{linear}.bias": normal(out)}
    made.mkdir()
    write_safetensors(made / "model.safetensors", {name: x.astype(dtype) for name, x in tensors.items()})
    (made / "config.json").write_text(json.dumps({
        "model_type": "gpt2", "vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 3,
        "n_positions": 32}))
    rapt.Tokenizer.bytes().save(str(made / "tokenizer.json"))
    return made


def write_llama(made):
    """Positions of RoPE, trained for 16 tokens."""
    rng = np.random.default_rng(2)
    shapes = {"embed_tokens": (VOCABULARY, WIDTH), "norm": (WIDTH,), "layers.0.input_layernorm": (WIDTH,),
              "layers.0.post_attention_layernorm": (WIDTH,), "layers.0.mlp.gate_proj": (20, WIDTH),
              "layers.0.mlp.up_proj": (20, WIDTH), "layers.0.mlp.down_proj": (WIDTH, 20),
              **{f"layers.0.self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}}
    made.mkdir()
    write_safetensors(made / "model.safetensors",
                      {f"model.{name}.weight": rng.standard_normal(shape, dtype=np.float32)
                       for name, shape in shapes.items()})
    (made / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 1,
        "num_attention_heads": 3, "intermediate_size": 20, "max_position_embeddings": 16,
        "tie_word_embeddings": True}))
    return made
