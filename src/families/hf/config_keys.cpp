#include <algorithm>

#include "base/io/check_input.h"
#include "families/family.h"

namespace rapt::detail {
namespace {

/// Keys of any config.json that change nothing here: its origin, its task, how to run and train it.
const std::vector<const char*> harmless = {
    "_name_or_path", "_commit_hash", "_attn_implementation_autoset", "attn_implementation",
    "model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "torchscript",
    "use_bfloat16", "use_cache", "gradient_checkpointing", "initializer_range",
    "initializer_factor", "return_dict", "return_dict_in_generate", "output_attentions",
    "output_hidden_states", "output_scores", "output_past", "chunk_size_feed_forward",
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout",
    "task_specific_params", "tokenizer_class", "prefix", "language", "adapters", "tf_legacy_loss",
    // Tokens.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id",
    // Generation options, from before generation_config.json.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "exponential_decay_length_penalty", "remove_invalid_values",
    "suppress_tokens", "begin_suppress_tokens", "max_new_tokens"};

/// A key that changes what a model computes, and the values under which it changes nothing.
struct Neutral {
  const char* key;
  std::vector<Json> values;
};

const std::vector<Neutral>& neutral_keys() {
  static const std::vector<Neutral> keys = {
      {"auto_map", {}},
      {"quantization_config", {}},
      {"compression_config", {}},
      {"partial_rotary_factor", {1}},
      {"rotary_pct", {1}},
      {"rope_interleave", {false}},
      {"rope_interleaved", {false}},
      {"no_rope_layers", {}},
      {"num_local_experts", {0, 1}},
      {"num_experts", {0, 1}},
      {"n_routed_experts", {0, 1}},
      {"attn_logit_softcapping", {0}},
      {"final_logit_softcapping", {0}},
      {"query_pre_attn_scalar", {}},
      {"attention_multiplier", {}},
      {"embedding_multiplier", {1}},
      {"residual_multiplier", {1}},
      {"logits_scaling", {1}},
      {"logit_scale", {1}},
      {"parallel_attn", {false}},
      {"parallel_residual", {false}},
      {"use_parallel_residual", {false}},
      {"alibi", {false}},
      {"use_qk_norm", {false}},
      {"qk_layernorm", {false}},
      {"sliding_window", {}},
      {"layer_types", {}},
      {"is_decoder", {false}},
      {"is_encoder_decoder", {false}},
      {"add_cross_attention", {false}},
      {"cross_attention_hidden_size", {}},
      {"tie_encoder_decoder", {false}},
      {"pruned_heads", {Json::object()}},
      {"position_embedding_type", {"absolute"}},
      {"rope_scaling", {}},
      {"rope_parameters", {}},
  };
  return keys;
}

/// Newer files name the attention of every layer, even if all are the same.
bool all_full(const Json& types) {
  return types.is_array() && std::all_of(types.begin(), types.end(),
                                         [](const Json& t) { return t == "full_attention"; });
}

}  // namespace

std::vector<std::string> unknown_keys(Fields& fields, const Family& family) {
  fields.ignore(harmless);
  fields.ignore(family.harmless);
  for (const std::string& key : fields.unasked()) {
    const auto found = std::find_if(neutral_keys().begin(), neutral_keys().end(),
                                    [&](const Neutral& neutral) { return neutral.key == key; });
    if (found == neutral_keys().end()) continue;
    const Json& value = fields.value(key);
    if (key == "layer_types" && all_full(value)) continue;
    if (!value.is_null() &&
        std::find(found->values.begin(), found->values.end(), value) == found->values.end())
      fields.fail(key, std::string("which a model of type ") + family.type +
                           " does not have in rapt; what it is for is not computed");
  }
  return fields.unasked();
}

}  // namespace rapt::detail
