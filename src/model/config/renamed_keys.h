#pragma once

#include "formats/config/fields.h"

namespace rapt::detail {

/// Keys of configs that rapt 0.1 knew by another name.
inline constexpr RenamedKey renamed_keys[] = {
    {"model", "vocabulary", "vocab_size"},
    {"model", "width", "hidden_size"},
    {"model", "ffn", "intermediate_size"},
    {"model", "norm_place", "norm_position"},
    {"model", "epsilon", "norm_epsilon"},
    {"model", "scaled_embedding", "scale_embeddings"},
    {"model", "token_types", "type_vocab_size"},
    {"model", "tied", "tied_embeddings"},
    {"model", "masked_head", "mlm_head"},
    {"model", "scaled_head", "scale_head"},
    {"model", "max_tokens", "max_positions"},
    {"model", "first_position", "position_offset"},
    {"model", "padding", "pad_token"},
    {"model", "axial_row_width", "axial_row_dim"},
    {"model", "weights", "weight_type"},
    {"data", "learning", "objective"},
    {"data", "items", "batch_size"},
    {"data", "evaluations", "eval_batches"},
    {"data", "held_out", "eval_fraction"},
    {"data", "held_out_path", "eval_path"},
    {"data", "masked", "mask_probability"},
    {"tokenizer", "entries", "vocab_size"},
    {"train", "accumulate", "accumulation_steps"},
    {"train", "clip", "max_grad_norm"},
    {"train", "floor", "min_learning_rate"},
    {"train", "warmup", "warmup_steps"},
    {"train", "keep", "keep_checkpoints"},
    {"train", "until", "target_accuracy"},
};

}  // namespace rapt::detail
