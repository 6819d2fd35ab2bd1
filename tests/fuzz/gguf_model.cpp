#include "families/gguf/gguf_model.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "support/gguf_bytes.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

using Tensors = std::vector<std::pair<std::string, std::vector<std::uint64_t>>>;

std::uint64_t tensor_list(const Tensors& tensors, test::GgufBytes& b) {
  std::uint64_t offset = 0;
  for (const auto& [tensor, sizes] : tensors) {
    b.tensor(tensor, sizes, 0, offset);
    const std::uint64_t numbers = sizes[0] * (sizes.size() == 2 ? sizes[1] : 1);
    offset += (4 * numbers + 31) / 32 * 32;
  }
  return offset;
}

/// A llama of one layer, f32.
std::string llama(const char* architecture) {
  const std::string name = std::string(architecture) + ".";
  const Tensors tensors = {
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
  const std::uint64_t bytes = tensor_list(tensors, b);
  return b.pad().raw(std::string(bytes, '\0')).bytes();
}

/// A sentence encoder of one layer, f32.
std::string bert() {
  Tensors tensors = {{"token_embd.weight", {4, 3}},
                     {"token_types.weight", {4, 2}},
                     {"position_embd.weight", {4, 5}},
                     {"token_embd_norm.weight", {4}},
                     {"token_embd_norm.bias", {4}}};
  const std::pair<const char*, std::vector<std::uint64_t>> layer[] = {
      {"attn_q", {4, 4}},      {"attn_k", {4, 4}},        {"attn_v", {4, 4}},
      {"attn_output", {4, 4}}, {"attn_output_norm", {4}}, {"ffn_up", {4, 2}},
      {"ffn_down", {2, 4}},    {"layer_output_norm", {4}}};
  for (const auto& [name, sizes] : layer) {
    tensors.push_back({std::string("blk.0.") + name + ".weight", sizes});
    tensors.push_back({std::string("blk.0.") + name + ".bias", {sizes.back()}});
  }
  test::GgufBytes b;
  b.begin(tensors.size(), 10).text_entry("general.architecture", "bert");
  const std::pair<const char*, std::uint32_t> counts[] = {{"bert.embedding_length", 4},
                                                          {"bert.block_count", 1},
                                                          {"bert.attention.head_count", 2},
                                                          {"bert.feed_forward_length", 2},
                                                          {"bert.context_length", 5},
                                                          {"bert.pooling_type", 1},
                                                          {"tokenizer.ggml.token_type_count", 2}};
  for (const auto& [key, value] : counts) b.entry<std::uint32_t>(key, 4, value);
  b.entry<float>("bert.attention.layer_norm_epsilon", 6, 1e-12f);
  b.entry<bool>("bert.attention.causal", 7, false);
  const std::uint64_t bytes = tensor_list(tensors, b);
  return b.pad().raw(std::string(bytes, '\0')).bytes();
}

/// GPT-2 of one layer, f32.
std::string gpt2() {
  Tensors tensors = {{"token_embd.weight", {4, 3}}, {"position_embd.weight", {4, 5}}};
  const std::pair<const char*, std::vector<std::uint64_t>> layers[] = {
      {"output_norm", {4}},          {"blk.0.attn_norm", {4}}, {"blk.0.attn_qkv", {4, 12}},
      {"blk.0.attn_output", {4, 4}}, {"blk.0.ffn_norm", {4}},  {"blk.0.ffn_up", {4, 2}},
      {"blk.0.ffn_down", {2, 4}}};
  for (const auto& [name, sizes] : layers) {
    tensors.push_back({name + std::string(".weight"), sizes});
    tensors.push_back({name + std::string(".bias"), {sizes.back()}});
  }
  test::GgufBytes b;
  b.begin(tensors.size(), 7).text_entry("general.architecture", "gpt2");
  const std::pair<const char*, std::uint32_t> counts[] = {{"gpt2.embedding_length", 4},
                                                          {"gpt2.block_count", 1},
                                                          {"gpt2.attention.head_count", 2},
                                                          {"gpt2.feed_forward_length", 2},
                                                          {"gpt2.context_length", 5}};
  for (const auto& [key, value] : counts) b.entry<std::uint32_t>(key, 4, value);
  b.entry<float>("gpt2.attention.layer_norm_epsilon", 6, 1e-5f);
  const std::uint64_t bytes = tensor_list(tensors, b);
  return b.pad().raw(std::string(bytes, '\0')).bytes();
}

std::vector<std::string> seeds() {
  return {llama("llama"), llama("qwen2"), llama("qwen3"), bert(), gpt2()};
}

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
          "embedding_length_out",
          "dense_2.weight",
          "qwen2"};
}

std::function<void()> open(std::string_view input) {
  const PretrainedInfo outline = gguf_info(in_memory(input));
  return [outline] { outline.config.check(); };
}

}  // namespace

// As config's: checking a config makes the tables of one rope, whose size the widest head bounds.
const Target gguf_model_target = {"gguf_model", seeds, words, open, 2 << 20};

}  // namespace rapt::fuzz
