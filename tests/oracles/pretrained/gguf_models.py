"""Models of Transformers as GGUF files, in the names and keys of PyPI's gguf and the ways of llama.cpp's
converter: what a reader of such files meets."""

import json

import gguf
import numpy
import tokenizers
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file

PREFIXES = ("bert.", "distilbert.", "roberta.")
TURNED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
HEADS = ("pooler.", "cls.", "lm_head.", "vocab_")


def stored(numbers, name, kind):
    """Matrices in the type that is asked for; vectors, positions and token types stay f32."""
    whole = numbers.ndim == 1 or name.startswith(("position_embd", "token_types"))
    kind = Type.F32 if whole else kind
    return gguf.quants.quantize(numpy.ascontiguousarray(numbers), kind), kind


def add_tensors(writer, folder, arch, layers, kind, change=lambda name, numbers: numbers):
    names = gguf.get_tensor_name_map(arch, layers)
    for name, tensor in load_file(folder / "model.safetensors").items():
        bare = next((name.removeprefix(p) for p in PREFIXES if name.startswith(p)), name)
        if bare.startswith(HEADS) or bare.endswith("position_ids"):
            continue
        theirs = names.get_name(bare, try_suffixes=(".weight", ".bias"))
        assert theirs, name
        data, raw = stored(change(bare, tensor.float().numpy()), theirs, kind)
        writer.add_tensor(theirs, data, raw_dtype=raw)


def add_word_pieces(writer, folder, types):
    """Words get a space before them, pieces within a word lose their '##', special tokens stay."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    words = [tokenizer.id_to_token(id_) for id_ in range(tokenizer.get_vocab_size())]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list([w if i in special else w[2:] if w.startswith("##") else "\u2581" + w
                           for i, w in enumerate(words)])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
                            for i in range(len(words))])
    writer.add_token_type_count(types)
    gguf.SpecialVocab(folder, n_vocab=len(words)).add_to_gguf(writer)


def add_bytes(writer, folder):
    """GPT-2's tokenizer: pieces of bytes as letters, and what merges."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    words = [tokenizer.id_to_token(id_) for id_ in range(tokenizer.get_vocab_size())]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL
                            for i in range(len(words))])
    gguf.SpecialVocab(folder, load_merges=True, n_vocab=len(words)).add_to_gguf(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gpt2(folder, path, kind=Type.F32):
    """Its matrices are [in, out] in the folder and [out, in] in a file; a head that is not the embedding is kept."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    add_tensors(writer, folder, gguf.MODEL_ARCH.GPT2, config["n_layer"], kind,
                lambda name, numbers: numbers.T if name.endswith(TURNED) else numbers)
    if (folder / "tokenizer.json").exists():
        add_bytes(writer, folder)
    head = load_file(folder / "model.safetensors").get("lm_head.weight")
    if head is not None:
        writer.add_tensor("output.weight", head.float().numpy())
    finish(writer)


def write_bert(folder, path, kind=Type.F32, pooling=None, keys=()):
    """A folder of BERT, DistilBERT or RoBERTa, with a tokenizer of BERT's if it has one. keys: more of them."""
    config = json.loads((folder / "config.json").read_text())
    distilled, roberta = config["model_type"] == "distilbert", config["model_type"] == "roberta"
    skipped = config["pad_token_id"] + 1 if roberta else 0  # rows of positions that no token has
    layers = config["n_layers" if distilled else "num_hidden_layers"]
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"] - skipped)
    writer.add_embedding_length(config["dim" if distilled else "hidden_size"])
    writer.add_feed_forward_length(config["hidden_dim" if distilled else "intermediate_size"])
    writer.add_head_count(config["n_heads" if distilled else "num_attention_heads"])
    writer.add_layer_norm_eps(1e-12 if distilled else config["layer_norm_eps"])
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    for key, value in keys:
        writer.add_uint32(key, value)
    if (folder / "tokenizer.json").exists():
        add_word_pieces(writer, folder, config.get("type_vocab_size", 1))
    add_tensors(writer, folder, gguf.MODEL_ARCH.BERT, layers, kind,
                lambda name, numbers: numbers[skipped:] if "position_embeddings" in name else numbers)
    finish(writer)
