#include "fuzz/target.h"

namespace rapt::fuzz {

std::vector<const Target*> all_targets() {
  return {
      &attention_pattern_target,
      &chat_target,
      &config_target,
      &gguf_target,
      &gguf_model_target,
      &gguf_tokenizer_target,
      &manifest_target,
      &metrics_target,
      &pairs_target,
      &pattern_target,
      &safetensors_target,
      &sentence_target,
      &shards_target,
      &text_target,
      &tokenizer_target,
      &toml_target,
  };
}

}  // namespace rapt::fuzz
