"""Tiny models of any type that Transformers knows: configurations shrunk by the names of their fields,
inputs made from the signature of forward."""

import dataclasses
import importlib
import inspect
import re

import torch
import transformers
from transformers.models.auto import configuration_auto, modeling_auto

WIDTH, HEADS, HEAD_DIM, TOKENS, VOCAB = 64, 4, 16, 12, 128

# The first rule that matches the whole name decides; a list keeps its length. None: leave it.
RULES = [
    (r"(unpadded_|text_|audio_|input_|output_|vision_|mel_)?vocab_size(_per_layer_input)?", VOCAB),
    (r"index_topk", 4),
    (r"mamba_(n|num)_heads|n_mamba_heads", 8),
    (r"mamba_(d_head|head_dim)", 16),
    (r"linear_num_(key|value)_heads|linear_num_heads", 4),
    (r"linear_(key_|value_)?head_dim", 16),
    (r"(\w+_)?(attention_heads|num_heads|n_heads?|num_attention_heads(_per_stage)?|heads)", HEADS),
    (r"(qk_nope|qk_rope|v)_head_dim", HEAD_DIM),
    (r"qk_head_dim|index_head_dim|(swa|global|cross)?_?head_dim|d_kv|kv_channels|attention_head_size"
     r"|attention_head_dim|dim_head|linear_head_dim|d_head|resampler_(dim_head|head_dim)", HEAD_DIM),
    (r"(q|kv|o)_lora_rank|laurel_rank", 16),
    (r"num_feat_extract_layers|num_kv_shared_layers|max_window_layers|no_rope_layers", None),
    (r"(\w+_)?(num_)?(hidden_)?layers|n_layers?|depth|\w+_layers|\w+_depth|num_blocks", 2),
    (r"depths|blocks_per_stage|stage_num_blocks", 1),
    (r"(\w+_)?(intermediate_(size|dim)|ffn_dim|ffn_hidden_size|mlp_dim|d_ff|dff|dim_ff|n_inner"
     r"|feedforward_dim|dim_feedforward|intermediate_size_mlp|linear_units)", 96),
    (r"num_experts_per_tok(en)?|moe_k|moe_topk|top_k_experts", 2),
    (r"(\w+_)?(num_experts|num_local_experts|n_routed_experts|moe_num_experts)", 4),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"upsample_groups", WIDTH),
    (r"image_size|pretrain_image_size|input_size|img_size", 32),
    (r"patch_size|patch_sizes", 8),
    (r"(max_|n_)?(position_embeddings|positions|ctx)|max_position_embeddings|n_positions"
     r"|max_(source|target|seq|sequence)\w*|context_length|model_max_length", 64),
    (r"sliding_window|attention_chunk_size|local_attention|sliding_window_size", 5),
    (r"num_mel_bins|feature_size|n_mel_bins|input_feat_per_channel", 16),
    (r"conv_dim", 32),
    (r"num_conv_pos_embeddings", 8),
    (r"num_conv_pos_embedding_groups", 4),
    (r"num_queries|num_query_tokens|resampler_n_latents|num_latents|num_image_tokens"
     r"|image_seq_length|mm_tokens_per_image", 4),
    (r"mamba_d_state|state_size|ssm_state_size", 8),
    (r"mamba_chunk_size|chunk_size", 4),
    (r"codebook_size|num_embeddings", 32),
    (r"hidden_size_per_layer_input", 16),
    (r"(\w+_)?(hidden_size|hidden_dim|embed_dim|d_model|n_embd|emb_dim|embedding_size|model_dim"
     r"|embedding_dim|projection_dim|proj_dim|projection_size|output_dim|d_inner|word_embed_proj_dim"
     r"|hidden_sizes|pooler_output_size|dim|project_dim|codebook_dim|neck_hidden_sizes)", WIDTH),
    (r"num_buckets", 8),
]
IDS = re.compile(r"\w*(token_id|token_index|token_ids|pad_idx|_idx)$")
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
           "pad_index": 0, "sep_token_id": 2, "cls_token_id": 1}
NEEDED = {"image_token_id", "image_token_index", "audio_token_id", "audio_token_index"}


def tiny_config(kind, whole=None):
    """A small configuration of a class, its parts small as well. `whole` is the usual one, where the
    class is a part and the model it is part of has set it up."""
    usual = kind()
    whole = usual if whole is None else whole
    own = OVERRIDES.get(kind.model_type) or OVERRIDES.get(kind.__name__) or {}
    changed, ids = {}, iter(range(VOCAB - 1, VOCAB - 64, -1))
    layers = _layers(whole)
    for name, value in vars(whole).items():
        if name in own or _derived(kind, name, value):
            continue
        if name in whole.sub_configs or isinstance(value, transformers.PreTrainedConfig):
            if value is not None:
                changed[name] = _backbone(value) or tiny_config(type(value), value)
            continue
        new = _small(name.lstrip("_"), value, ids, layers)
        if new is not None and new != value:
            changed[name.lstrip("_")] = new
        elif whole is not usual and _set_by_the_whole(name, value, usual):
            changed[name] = value
    changed.update(_key_value_heads(whole))
    changed.update(_rope(whole))
    if layers:
        changed["num_hidden_layers"] = len(layers)
    return kind(**{**changed, **own})


def _derived(kind, name, value):
    """Whether the configuration computes this number from others."""
    if (not dataclasses.is_dataclass(kind) or name.startswith("_")
            or not isinstance(value, (int, list, tuple))):
        return False
    field = kind.__dataclass_fields__.get(name)
    return field is None or (isinstance(value, int) and field.default is None
                             and not IDS.match(name))


def _set_by_the_whole(name, value, usual):
    return (not name.startswith("_") and isinstance(value, (bool, int, float, str))
            and vars(usual).get(name) != value and name not in ("model_type", "torch_dtype", "dtype"))


def _backbone(config):
    """timm's models need torchvision, of which there is none for PyTorch without CUDA in the usual
    place; ResNet does as well."""
    if config.model_type not in ("timm_backbone", "timm_wrapper"):
        return None
    return transformers.ResNetConfig(embedding_size=32, hidden_sizes=[32, 32, 64, 64], depths=[1] * 4,
                                     out_features=["stage2", "stage3", "stage4"],
                                     layer_type="basic")


def _layers(config):
    """Which layers stay: one of each kind at least."""
    kinds = vars(config).get("layer_types") or vars(config).get("layers_block_type")
    if not kinds:
        return None
    first = [i for i, kind in enumerate(kinds) if kind not in kinds[:i]]
    return first if len(first) > 1 else [first[0], min(first[0] + 1, len(kinds) - 1)]


def _small(name, value, ids, layers):
    if isinstance(value, (list, tuple)) and layers and len(value) > max(layers) and (
            "layer" in name or "types" in name or "pattern" in name):
        return [value[i] for i in layers]
    if IDS.match(name) or name in SPECIAL:
        return _token(name, value, ids)
    numbers = value if isinstance(value, (list, tuple)) else [value]
    if not numbers or any(type(x) is not int for x in numbers):
        return None
    for pattern, size in RULES:
        if re.fullmatch(pattern, name):
            return [size] * len(numbers) if size and isinstance(value, (list, tuple)) else size
    return None


def _key_value_heads(config):
    """As many as queries have, half of them, or one."""
    found = {}
    for name, value in vars(config).items():
        if re.fullmatch(r"(\w+_)?num_(key_value|kv)_heads", name) and type(value) is int:
            heads = vars(config).get(re.sub("key_value|kv", "attention", name), value)
            found[name] = 1 if value == 1 else HEADS if value == heads else HEADS // 2
    return found


def _token(name, value, ids):
    if name in SPECIAL and isinstance(value, (int, list)):
        return SPECIAL[name]
    if isinstance(value, int) and value >= VOCAB - 64 or value is None and name in NEEDED:
        return next(ids)
    return None


def _rope(config):
    """Three sections of the rotated dimensions, where the model divides them."""
    rope = vars(config).get("rope_parameters")
    modeling = type(config).__module__.replace("configuration_", "modeling_")
    try:
        divides = "mrope_section" in inspect.getsource(importlib.import_module(modeling))
    except (ImportError, OSError):
        return {}
    if not isinstance(rope, dict) or not rope or not divides or any(isinstance(x, dict) for x in rope.values()):
        return {}
    pairs = int(HEAD_DIM * rope.get("partial_rotary_factor", 1)) // 2
    section = 3 * pairs // 8
    return {"rope_parameters": {**rope, "mrope_section": [pairs - 2 * section, section, section]}}


_SHARED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4,
           "num_kv_shared_layers": 2}
_THINKER = {"vision_start_token_id": 60, "vision_end_token_id": 61, "audio_start_token_id": 62,
            "audio_end_token_id": 63}
_SERIES = {"input_size": 1, "prediction_length": 4, "lags_sequence": [1, 2, 3]}
# What no rule can know.
OVERRIDES = {
    "gemma4_text": _SHARED, "gemma4_unified_text": _SHARED,
    "gemma3n_text": {**_SHARED, "intermediate_size": 96, "activation_sparsity_pattern": None},
    "DbrxAttentionConfig": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 2, "num_hidden_layers": 4},
    "chameleon": {"vocabulary_map": {"<image>": 90, **{f"IMGIMG{c}Z": 60 + i for i, c in
                                                       enumerate("ABCDEFGH")}}},
    "emu3": {"vocabulary_map": {"<image>": 90, "<|extra_200|>": 91, **{
        f"<|visual token {i:06d}|>": 60 + i for i in range(8)}}},
    "mamba2": {"num_heads": 8, "head_dim": 16}, "bit": {"num_groups": 8},
    "poolformer": {"patch_sizes": [7, 3, 3, 3]}, "xmod": {"default_language": "en_XX"},
    "convnext": {"image_size": 128}, "convnextv2": {"image_size": 128},
    "mimi": {"vector_quantization_hidden_dimension": WIDTH},
    "qwen2_5_omni_thinker": _THINKER, "qwen3_omni_moe_thinker": _THINKER,
    "cohere_compass_text": {"rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
        for kind in ("full_attention", "sliding_attention")}},
    "time_series_transformer": _SERIES, "informer": _SERIES,
    "sam2_hiera_det_model": {"embed_dim_per_stage": [64] * 4, "num_attention_heads": HEADS},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 2},
    "bamba": {"attn_layer_indices": [1], "num_hidden_layers": 2, "mamba_expand": 2},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16},
    "esm": {"vocab_size": VOCAB, "pad_token_id": 0, "mask_token_id": 3},
    "hunyuan_v1_dense": {"head_dim": HEAD_DIM}, "hunyuan_v1_moe": {"head_dim": HEAD_DIM},
    "hunyuan_vl_text": {"head_dim": HEAD_DIM}, "ministral": {"head_dim": HEAD_DIM},
    "deepseek_v2": {"num_experts_per_tok": 2}, "blt": {"num_hidden_layers": 2, "encoder_hash_byte_group_vocab": 64},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "dots3_note_text": {"per_layer_config": {}}, "longcat_flash": {"qk_head_dim": 32},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "granite_speech5_encoder": {"context_size": 8}, "granite_speech5_ctc": {"context_size": 8},
    "ernie4_5_vl_moe_text": {"rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}},
    "glm5_next_text": {"qk_rope_head_dim": 0, "index_topk": 16, "index_kpool": 4},
    "zaya": {"num_experts_per_tok": 1}, "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "swin": {"image_size": 64, "patch_size": 2, "window_size": 4, "depths": [2] * 4,
             "num_heads": [4] * 4}, "t5": {"decoder_start_token_id": 0},
    "luke": {"entity_vocab_size": 64, "entity_emb_size": 64},
    "mobilebert": {"intra_bottleneck_size": 64, "true_hidden_size": 64, "use_bottleneck": False},
    "depth_pro": {"patch_size": 32, "intermediate_hook_ids": [1, 0]}, "align": {"projection_dim": 640},
}


def model_types():
    return sorted(configuration_auto.CONFIG_MAPPING.keys())


GENERATING = ["MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
              "MODEL_FOR_MULTIMODAL_LM_MAPPING", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
              "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING"]
OTHERS = ["MODEL_MAPPING", "MODEL_FOR_PRETRAINING_MAPPING"]


def _from(names, kind):
    for name in names:
        mapping = getattr(modeling_auto, name, {})
        if kind in mapping:
            found = mapping[kind]
            return found[0] if isinstance(found, (list, tuple)) else found
    return None


def model_classes(kind):
    """(the class for forward and gradients, the class that generates or None)"""
    # The causal class of a model of parts takes a part's configuration, or is its decoder alone.
    of_parts = bool(kind.sub_configs) or kind().is_encoder_decoder
    generating = _from(GENERATING[of_parts:] + GENERATING[:of_parts], kind)
    plain = _from(OTHERS, kind)
    if generating is not None and not generating.can_generate():
        generating = None
    bidirectional = hasattr(kind(), "is_decoder") and not kind().is_encoder_decoder
    if generating is not None and not (bidirectional and plain is not None):
        return generating, generating
    return plain or generating, generating
