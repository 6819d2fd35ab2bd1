"""Tiny models for examples that take one, with weights chosen by hand so that their results are known."""

import json
import random
import struct

START, STOP = "<|im_start|>", "<|im_end|>"
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
          "'<|im_end|>' + '\n'}}{% endfor %}{{ '<|im_start|>assistant\n' }}")
TEXT, LIST, UNSIGNED, SIGNED, REAL = 8, 9, 4, 5, 6  # types of GGUF's values


def byte_letters():
    """A character for every byte, as GPT-2 spells its tokens: printable bytes are themselves."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == TEXT:
        return gguf_text(value)
    return struct.pack({UNSIGNED: "<I", SIGNED: "<i", REAL: "<f"}[kind], value)


def gguf_entry(key, kind, value):
    if not isinstance(value, list):
        return gguf_text(key) + struct.pack("<I", kind) + gguf_value(kind, value)
    return (gguf_text(key) + struct.pack("<IIQ", LIST, kind, len(value))
            + b"".join(gguf_value(kind, each) for each in value))


def write_gguf(path, entries, tensors):
    """tensors: name to (sizes, innermost first; f32 numbers)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(gguf_entry(*entry) for entry in entries)
    data = b""
    for name, (sizes, numbers) in tensors.items():
        head += gguf_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, len(data))
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_chat(path, reply):
    """A llama whose answer is always `reply`, of which no byte occurs twice, and then its stop token.

    Attention and feed-forward network add nothing; a token is a one-hot vector, and the head maps each
    byte of the reply to the next one, from the line end that every ChatML prompt has last."""
    tokens = [*byte_letters(), START, STOP, "th"]
    width, ffn = 264, 8
    chain = [ord("\n"), *reply.encode(), tokens.index(STOP)]
    assert len(set(chain)) == len(chain)
    embedding, head = [0.0] * (len(tokens) * width), [0.0] * (len(tokens) * width)
    for token in range(len(tokens)):
        embedding[token * width + token] = 1.0
    for token, successor in zip(chain, chain[1:]):
        head[successor * width + token] = 10.0
    entries = [("general.architecture", TEXT, "llama"), ("llama.block_count", UNSIGNED, 1),
               ("llama.context_length", UNSIGNED, 512), ("llama.embedding_length", UNSIGNED, width),
               ("llama.feed_forward_length", UNSIGNED, ffn), ("llama.attention.head_count", UNSIGNED, 4),
               ("llama.attention.layer_norm_rms_epsilon", REAL, 1e-5),
               ("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, "gpt-2"),
               ("tokenizer.ggml.tokens", TEXT, tokens), ("tokenizer.ggml.merges", TEXT, ["t h"]),
               ("tokenizer.ggml.token_type", SIGNED, [3 if token in (START, STOP) else 1 for token in tokens]),
               ("tokenizer.ggml.eos_token_id", UNSIGNED, tokens.index(STOP)),
               ("tokenizer.chat_template", TEXT, CHATML)]
    square, ones = ([width, width], [0.0] * width * width), ([width], [1.0] * width)
    tensors = {"token_embd.weight": ([width, len(tokens)], embedding),
               "output.weight": ([width, len(tokens)], head), "output_norm.weight": ones,
               "blk.0.attn_norm.weight": ones, "blk.0.ffn_norm.weight": ones,
               **{f"blk.0.attn_{name}.weight": square for name in ("q", "k", "v", "output")},
               **{f"blk.0.ffn_{name}.weight": ([width, ffn], [0.0] * width * ffn) for name in ("gate", "up")},
               "blk.0.ffn_down.weight": ([ffn, width], [0.0] * width * ffn)}
    write_gguf(path, entries, tensors)


def write_safetensors(path, tensors):
    """tensors: name to (shape, f32 numbers)."""
    header, data = {}, b""
    for name, (shape, numbers) in tensors.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_sentence_model(folder, words):
    """A BERT that gives each word a random vector of its own and a text the mean of its words."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    width, ffn, positions, rng = 32, 8, 64, random.Random(0)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "architectures": ["BertModel"], "vocab_size": len(tokens), "hidden_size": width,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": ffn, "type_vocab_size": 1,
        "max_position_embeddings": positions, "pad_token_id": 0}))
    (folder / "tokenizer.json").write_text(json.dumps({
        "added_tokens": [{"id": i, "content": tokens[i], "special": True} for i in range(4)],
        "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": {"type": "WordPiece"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {t: i for i, t in enumerate(tokens)}}}))

    def zeros(*shape):
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        return list(shape), [0.0] * count

    vectors = [rng.gauss(0, 1) for _ in range(len(tokens) * width)]
    tensors = {"embeddings.word_embeddings.weight": ([len(tokens), width], vectors),
               "embeddings.position_embeddings.weight": zeros(positions, width),
               "embeddings.token_type_embeddings.weight": zeros(1, width)}
    layer = "encoder.layer.0."
    linear = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
    linear |= {"attention.output.dense": (width, width), "intermediate.dense": (ffn, width),
               "output.dense": (width, ffn)}
    for name, shape in linear.items():
        tensors[f"{layer}{name}.weight"], tensors[f"{layer}{name}.bias"] = zeros(*shape), zeros(shape[0])
    for name in ("embeddings", f"{layer}attention.output", f"{layer}output"):
        tensors[f"{name}.LayerNorm.weight"] = ([width], [1.0] * width)
        tensors[f"{name}.LayerNorm.bias"] = zeros(width)
    write_safetensors(folder / "model.safetensors", tensors)
