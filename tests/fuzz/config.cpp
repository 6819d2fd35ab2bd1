#include "families/family_config.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

/// What rapt writes for a small model of each family that can hold it, and what others write.
std::vector<std::string> seeds() {
  std::vector<std::string> made = {
      R"({"model_type":"llama","vocab_size":32,"hidden_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":16,"eos_token_id":[1,2],)"
      R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
      R"("high_freq_factor":4.0,"original_max_position_embeddings":8192}})",
      R"({"model_type":"mistral","vocab_size":32,"hidden_size":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"intermediate_size":16,"sliding_window":4,"hidden_act":"silu"})",
      R"({"model_type":"qwen2","vocab_size":32,"hidden_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":2,"intermediate_size":16,"use_sliding_window":true,)"
      R"("sliding_window":4,"max_window_layers":1,"rope_parameters":{"rope_type":"yarn",)"
      R"("factor":4.0,"rope_theta":10000.0,"original_max_position_embeddings":64}})",
      R"({"model_type":"qwen3","vocab_size":32,"hidden_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":2,"intermediate_size":16,"head_dim":4,"sliding_window":4,)"
      R"("layer_types":["sliding_attention","full_attention"],"use_sliding_window":true})",
      R"({"model_type":"roformer","vocab_size":32,"hidden_size":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"intermediate_size":16,"embedding_size":8,"rotary_value":false})",
      R"({"model_type":"longformer","vocab_size":32,"hidden_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":2,"intermediate_size":16,"attention_window":[4,8],"pad_token_id":1})",
      R"({"model_type":"t5","architectures":["T5EncoderModel"],"vocab_size":32,"d_model":8,"d_kv":4,)"
      R"("d_ff":16,"num_heads":2,"num_layers":1,"is_encoder_decoder":false})",
      R"({"model_type":"reformer","vocab_size":32,"hidden_size":8,"num_attention_heads":2,)"
      R"("attention_head_size":4,"feed_forward_size":16,"attn_layers":["local","lsh"],)"
      R"("is_decoder":true,"axial_pos_shape":[4,4],"axial_pos_embds_dim":[4,4],"num_buckets":[2,4]})"};
  ModelConfig small;
  small.vocab_size = 32;
  small.hidden_size = 8;
  small.layers = small.encoder_layers = 1;
  small.heads = 2;
  small.intermediate_size = 16;
  for (const Family& family : families()) {
    const Json written = family.write(small);
    try {
      family_config_from(written, "seed");
      made.push_back(written.dump());
    } catch (const std::runtime_error&) {
      continue;  // the family has no words for it
    }
  }
  made.push_back(made[1] + std::string(1, '\0') +
                 R"({"bos_token_id":1,"eos_token_id":[2,3],"pad_token_id":-1})");
  return made;
}

std::vector<std::string> words() {
  return json_words({"model_type",
                     "rope_scaling",
                     "rope_type",
                     "type",
                     "factor",
                     "linear",
                     "dynamic",
                     "yarn",
                     "llama3",
                     "longrope",
                     "rope_theta",
                     "sliding_window",
                     "num_attention_heads",
                     "num_key_value_heads",
                     "head_dim",
                     "hidden_act",
                     "gelu",
                     "relu",
                     "layer_types",
                     "tie_word_embeddings",
                     "eos_token_id",
                     "pad_token_id",
                     "attention_window",
                     "short_factor",
                     "long_factor",
                     "num_hidden_layers",
                     "max_position_embeddings",
                     "architectures"});
}

/// A config.json and, behind a zero byte, a generation_config.json.
std::function<void()> open(std::string_view input) {
  const std::size_t zero = input.find('\0');
  FamilyConfig read = family_config_from(parse_json(input.substr(0, zero), "fuzz"), "fuzz");
  if (zero != std::string_view::npos)
    add_generation(read, parse_json(input.substr(zero + 1), "fuzz"), "fuzz");
  return [read] {
    expect(read.config.layers > 0 && read.config.vocab_size > 0, "an empty model");
    read.config.check();
    const Json written = read.family->write(read.config);
    expect(written.is_object(), "a config that cannot be written");
  };
}

}  // namespace

/// A pattern for each of the most layers there may be.
const Target config_target = {"config", seeds, words, open, 2 << 20};

}  // namespace rapt::fuzz
