#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "families/family_config.h"

namespace rapt::test {
using namespace detail;

struct FamilyCase {
  const char* name;
  const char* config;
};

// Tiny configs as Transformers writes them.
inline const FamilyCase cases[] = {
    {"gpt2", R"({"model_type": "gpt2", "vocab_size": 19, "n_embd": 12, "n_layer": 2, "n_head": 3,
                 "n_positions": 32})"},
    {"llama", R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 12,
                  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
                  "intermediate_size": 20, "rope_theta": 5000.0,
                  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                  "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})"},
    {"mistral", R"({"model_type": "mistral", "vocab_size": 19, "hidden_size": 12,
                    "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
                    "intermediate_size": 20, "sliding_window": 7})"},
    {"qwen2", R"({"model_type": "qwen2", "vocab_size": 19, "hidden_size": 12,
                  "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3,
                  "intermediate_size": 20, "tie_word_embeddings": true, "sliding_window": 7,
                  "use_sliding_window": true, "max_window_layers": 1})"},
    {"qwen3", R"({"model_type": "qwen3", "vocab_size": 19, "hidden_size": 12, "head_dim": 8,
                  "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
                  "intermediate_size": 20})"},
    {"bert", R"({"model_type": "bert", "vocab_size": 19, "hidden_size": 12,
                 "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20})"},
    {"roberta", R"({"model_type": "roberta", "vocab_size": 19, "hidden_size": 12,
                    "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
                    "max_position_embeddings": 34, "type_vocab_size": 1, "pad_token_id": 1})"},
    {"xlm-roberta", R"({"model_type": "xlm-roberta", "vocab_size": 19, "hidden_size": 12,
                        "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
                        "max_position_embeddings": 34, "type_vocab_size": 1})"},
    {"camembert", R"({"model_type": "camembert", "vocab_size": 19, "hidden_size": 12,
                      "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
                      "max_position_embeddings": 34, "type_vocab_size": 1})"},
    {"distilbert", R"({"model_type": "distilbert", "vocab_size": 19, "dim": 12, "n_layers": 2,
                       "n_heads": 3, "hidden_dim": 20, "sinusoidal_pos_embds": true})"},
    {"roformer", R"({"model_type": "roformer", "vocab_size": 19, "hidden_size": 12,
                     "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20})"},
    {"longformer", R"({"model_type": "longformer", "vocab_size": 19, "hidden_size": 12,
                       "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
                       "max_position_embeddings": 34, "attention_window": [4, 8],
                       "pad_token_id": 1})"},
    {"t5", R"({"model_type": "t5", "vocab_size": 19, "d_model": 12, "d_kv": 5, "d_ff": 20,
               "num_layers": 2, "num_heads": 3})"},
    {"bloom", R"({"model_type": "bloom", "vocab_size": 19, "hidden_size": 12, "n_layer": 2,
                  "n_head": 3})"},
    {"reformer", R"({"model_type": "reformer", "vocab_size": 19, "hidden_size": 12,
                     "num_attention_heads": 3, "attention_head_size": 4, "feed_forward_size": 20,
                     "attn_layers": ["local", "lsh"], "axial_pos_shape": [4, 8],
                     "axial_pos_embds_dim": [4, 8], "is_decoder": true, "num_buckets": 4,
                     "hash_seed": 3})"},
};

inline ModelConfig config_of(const FamilyCase& c) {
  Fields fields(parse_json(c.config, c.name), c.name);
  return family_of(c.name, "test").read(fields);
}

/// What a call throws; "" if nothing.
template <class Call>
std::string thrown(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline void expect_same_parameters(const Transformer& model, const Transformer& expected) {
  ASSERT_EQ(model.parameters().size(), expected.parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter &a = expected.parameters()[i], &b = model.parameters()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(std::equal(a.value.data(), a.value.data() + a.value.elements(), b.value.data()))
        << a.name;
  }
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace rapt::test
