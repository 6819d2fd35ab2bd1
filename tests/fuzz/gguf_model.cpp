#include "families/pretrained.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "support/gguf.h"

namespace rapt::fuzz {
namespace {

/// A llama of one layer, f32.
std::string llama(const char* architecture) {
  const std::string name = std::string(architecture) + ".";
  const std::pair<const char*, std::vector<std::uint64_t>> tensors[] = {
      {"token_embd.weight", {4, 3}},        {"output_norm.weight", {4}},
      {"blk.0.attn_norm.weight", {4}},      {"blk.0.attn_q.weight", {4, 4}},
      {"blk.0.attn_k.weight", {4, 2}},      {"blk.0.attn_v.weight", {4, 2}},
      {"blk.0.attn_output.weight", {4, 4}}, {"blk.0.ffn_norm.weight", {4}},
      {"blk.0.ffn_gate.weight", {4, 2}},    {"blk.0.ffn_up.weight", {4, 2}},
      {"blk.0.ffn_down.weight", {2, 4}},
  };
  test::GgufBytes b;
  b.begin(std::size(tensors), 8).text_entry("general.architecture", architecture);
  b.entry<std::uint32_t>(name + "embedding_length", 4, 4);
  b.entry<std::uint32_t>(name + "block_count", 4, 1);
  b.entry<std::uint32_t>(name + "attention.head_count", 4, 2);
  b.entry<std::uint32_t>(name + "attention.head_count_kv", 4, 1);
  b.entry<std::uint32_t>(name + "feed_forward_length", 4, 2);
  b.entry<float>(name + "rope.freq_base", 6, 10000);
  b.text_entry(name + "rope.scaling.type", "none");
  std::uint64_t offset = 0;
  for (const auto& [tensor, sizes] : tensors) {
    b.tensor(tensor, sizes, 0, offset);
    const std::uint64_t numbers = sizes[0] * (sizes.size() == 2 ? sizes[1] : 1);
    offset += (4 * numbers + 31) / 32 * 32;
  }
  return b.pad().raw(std::string(offset, '\0')).bytes();
}

std::vector<std::string> seeds() { return {llama("llama"), llama("qwen2"), llama("qwen3")}; }

std::vector<std::string> words() {
  return {"rope.scaling.factor",
          "yarn",
          "linear",
          "rope_freqs.weight",
          "attention.key_length",
          "blk.0.attn_q.bias",
          "output.weight",
          "context_length",
          "expert_count",
          "qwen2"};
}

std::function<void()> open(std::string_view input) {
  const PretrainedOutline outline = outline_gguf(in_memory(input));
  return [outline] { outline.config.check(); };
}

}  // namespace

// As config's: checking a config makes the tables of one rope, whose size the widest head bounds.
const Target gguf_model_target = {"gguf_model", seeds, words, open, 2 << 20};

}  // namespace rapt::fuzz
