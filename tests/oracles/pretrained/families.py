"""Tiny models of every family with random weights, as Transformers makes and saves them."""

import torch
import transformers

VOCABULARY, WIDTH, FFN, LAYERS, HEADS = 61, 48, 80, 3, 4
QUIET = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

LLAMA = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": FFN,
         "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 2,
         "max_position_embeddings": 128, **QUIET}
BERT = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": FFN, "max_position_embeddings": 128,
        "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
ROBERTA = {"pad_token_id": 1, "type_vocab_size": 1}
T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 10, "d_ff": FFN, "num_layers": LAYERS,
      "num_heads": HEADS, "dropout_rate": 0, "decoder_start_token_id": 0}
REFORMER = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_attention_heads": HEADS,
            "attention_head_size": 12, "feed_forward_size": FFN, "axial_pos_shape": [4, 16],
            "axial_pos_embds_dim": [16, 32], "max_position_embeddings": 64, "num_buckets": 4,
            "num_hashes": 2, "hash_seed": 7, "lsh_attn_chunk_length": 16,
            "local_attn_chunk_length": 16, "hidden_dropout_prob": 0.0,
            "local_attention_probs_dropout_prob": 0.0, "lsh_attention_probs_dropout_prob": 0.0}


def causal(name, **config):
    model, settings = getattr(transformers, f"{name}ForCausalLM"), getattr(transformers, f"{name}Config")
    return lambda: model(settings(**config))


def masked(name, **config):
    model, settings = getattr(transformers, f"{name}ForMaskedLM"), getattr(transformers, f"{name}Config")
    return lambda: model(settings(**BERT | config))


def distilbert(model, **config):
    return lambda: model(transformers.DistilBertConfig(**{
        "vocab_size": VOCABULARY, "dim": WIDTH, "hidden_dim": FFN, "n_layers": LAYERS, "n_heads": HEADS,
        "max_position_embeddings": 128, "dropout": 0, "attention_dropout": 0} | config))


def t5(**config):
    return lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5 | config))


def t5_encoder(**config):
    return lambda: transformers.T5EncoderModel(transformers.T5Config(**T5 | config))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=128, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=FFN,
        embd_pdrop=0, resid_pdrop=0, attn_pdrop=0, **QUIET))


def reformer(model, **config):
    return lambda: model(transformers.ReformerConfig(**REFORMER | config))


ROPE = {"yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
                 "rope_theta": 5000.0},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32,
                   "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 500000.0},
        "linear": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}

CAUSAL = {
    "gpt2": gpt2,
    "llama": causal("Llama", **LLAMA),
    "llama-tied-biases": causal("Llama", **LLAMA | {"tie_word_embeddings": True, "attention_bias": True,
                                                    "mlp_bias": True}),
    **{f"llama-{kind}": causal("Llama", **LLAMA | {"rope_parameters": rope}) for kind, rope in ROPE.items()},
    "mistral": causal("Mistral", **LLAMA | {"sliding_window": 9, "head_dim": 12}),
    "qwen2": causal("Qwen2", **LLAMA),
    "qwen2-windows": causal("Qwen2", **LLAMA | {"use_sliding_window": True, "sliding_window": 9,
                                                "max_window_layers": 1}),
    "qwen3": causal("Qwen3", **LLAMA | {"head_dim": 20}),
    "bloom": causal("Bloom", vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS, **QUIET),
    "bloom-6-heads": causal("Bloom", vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=6,
                            **QUIET),
}
MASKED = {
    "bert": masked("Bert"),
    "roberta": masked("Roberta", pad_token_id=1, type_vocab_size=1),
    "xlm-roberta": masked("XLMRoberta", pad_token_id=1, type_vocab_size=1),
    "camembert": masked("Camembert", pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5),
    "distilbert": distilbert(transformers.DistilBertForMaskedLM),
    "distilbert-relu": distilbert(transformers.DistilBertForMaskedLM, activation="relu"),
    "roformer": masked("RoFormer"),
    "longformer": masked("Longformer", pad_token_id=1, attention_window=[8, 16, 16]),
}
T5S = {"t5": t5(), "t5-gated": t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)}
BODIES = {"bert": lambda: transformers.BertModel(transformers.BertConfig(**BERT)),
          "roberta": lambda: transformers.RobertaModel(transformers.RobertaConfig(**BERT | ROBERTA)),
          "xlm-roberta": lambda: transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**BERT | ROBERTA)),
          "distilbert": distilbert(transformers.DistilBertModel),
          "t5-encoder": t5_encoder(), "t5-encoder-gated": t5_encoder(feed_forward_proj="gated-gelu")}
REFORMERS = {"reformer": reformer(transformers.ReformerModelWithLMHead, is_decoder=True,
                                   attn_layers=["local", "lsh", "local", "lsh"]),
             "reformer-encoder": reformer(transformers.ReformerForMaskedLM, is_decoder=False,
                                          attn_layers=["lsh", "local"],
                                          local_num_chunks_after=1)}


def noisy(make, seed=1):
    """Gains that are one and biases that are zero hide mistakes."""
    torch.manual_seed(seed)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # others are tables that follow from the config
                parameter.add_((0.2 if parameter.dim() == 1 else 0.05) * torch.randn(parameter.shape))
    return model


def ids(items, tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (items, tokens), generator=generator)
