#include <gtest/gtest.h>

#include <cmath>

#include "families/pretrained.h"
#include "support/folder.h"
#include "support/gguf.h"

// GGUF files whose header is sound, but which make no model (numerics.md c.0, c.2).
namespace rapt::test {
namespace {

using Sizes = std::vector<std::uint64_t>;

struct Parts {
  std::map<std::string, std::uint32_t> counts = {{"embedding_length", 4},
                                                 {"block_count", 1},
                                                 {"attention.head_count", 2},
                                                 {"attention.head_count_kv", 1},
                                                 {"feed_forward_length", 2}};
  std::map<std::string, float> reals = {};
  std::map<std::string, std::uint32_t> ids = {};  // below tokenizer.ggml
  std::string chat_template = {};
  std::vector<std::pair<std::string, Sizes>> tensors = {
      {"token_embd.weight", {4, 3}},        {"output_norm.weight", {4}},
      {"blk.0.attn_norm.weight", {4}},      {"blk.0.attn_q.weight", {4, 4}},
      {"blk.0.attn_k.weight", {4, 2}},      {"blk.0.attn_v.weight", {4, 2}},
      {"blk.0.attn_output.weight", {4, 4}}, {"blk.0.ffn_norm.weight", {4}},
      {"blk.0.ffn_gate.weight", {4, 2}},    {"blk.0.ffn_up.weight", {4, 2}},
      {"blk.0.ffn_down.weight", {2, 4}}};
};

class GgufModel : public testing::Test {
 protected:
  void write(const Parts& parts) const {
    GgufBytes b;
    b.begin(parts.tensors.size(), 2 + parts.counts.size() + parts.reals.size() + parts.ids.size());
    b.text_entry("general.architecture", "llama");
    b.text_entry("tokenizer.chat_template", parts.chat_template);
    for (const auto& [key, value] : parts.counts) b.entry("llama." + key, 4, value);
    for (const auto& [key, value] : parts.reals) b.entry("llama." + key, 6, value);
    for (const auto& [key, value] : parts.ids) b.entry("tokenizer.ggml." + key, 4, value);
    std::uint64_t offset = 0;
    for (const auto& [name, sizes] : parts.tensors) {
      b.tensor(name, sizes, 0, offset);
      offset += (4 * sizes[0] * (sizes.size() == 2 ? sizes[1] : 1) + 31) / 32 * 32;
    }
    put(path_, b.pad().raw(std::string(offset, '\0')).bytes());
  }
  Pretrained read(const Parts& parts) const {
    write(parts);
    return read_pretrained(path_);
  }
  void refused(const Parts& parts, std::vector<std::string> words) const {
    words.push_back(path_);
    expect_broken([&] { read(parts); }, words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.gguf";
};

TEST_F(GgufModel, IsReadAndWhatNobodyUsesIsTold) {
  EXPECT_TRUE(read({}).notices.empty());
  Parts parts;
  parts.tensors.push_back({"x\x1b[31m", {4}});
  const Pretrained made = read(parts);
  ASSERT_EQ(made.notices.size(), 1u);
  EXPECT_NE(made.notices[0].find(R"("x\u001b[31m" is not used)"), std::string::npos);
}

TEST_F(GgufModel, AChatTemplateThatIsNoTextIsToldAndLeftOut) {
  EXPECT_EQ(read({.chat_template = "<|user|>"}).chat_template, "<|user|>");
  const Pretrained made = read({.chat_template = "<|user|>\xff"});
  EXPECT_EQ(made.chat_template, "");
  ASSERT_EQ(made.notices.size(), 1u);
  EXPECT_NE(made.notices[0].find("no UTF-8 at byte 8"), std::string::npos) << made.notices[0];
}

TEST_F(GgufModel, CountsThatCannotBe) {
  const auto with = [&](const char* key, std::uint32_t value) {
    Parts parts;
    parts.counts[key] = value;
    return parts;
  };
  refused(with("attention.head_count", 0), {"llama.attention.head_count is 0, expected 1 to"});
  refused(with("attention.head_count", ~0u), {"is 4294967295, expected 1 to"});
  refused(with("attention.head_count_kv", 3), {"kv_heads is 3", "divisor of heads"});
  refused(with("block_count", 0), {"llama.block_count is 0, expected 1 to 4096"});
  refused(with("block_count", 1u << 31), {"llama.block_count is 2147483648"});
  refused(with("block_count", 4096), {"no weight of layer 4095 of the 4096"});
  // Found by fuzzing: a weight of the last layer alone, and memory for all of them.
  Parts last = with("block_count", 4096);
  last.tensors.push_back({"blk.4095.attn_norm.weight", {4}});
  refused(last, {"no weight of layer 4094 of the 4096"});
  refused(with("feed_forward_length", 3), {"has shape [2, 4], expected [3, 4]"});
  refused(with("embedding_length", 1u << 31), {"a head has 1073741824 numbers"});
  refused(with("attention.key_length", 1u << 30), {"a head has 1073741824 numbers"});
  refused(with("context_length", 0), {"llama.context_length is 0"});
  refused(with("expert_count", 8), {"llama.expert_count is not 0"});
}

TEST_F(GgufModel, NumbersThatCannotBe) {
  const auto with = [&](const char* key, float value) {
    Parts parts;
    parts.reals[key] = value;
    return parts;
  };
  for (const float epsilon : {0.f, -1.f, 1e10f})
    refused(with("attention.layer_norm_rms_epsilon", epsilon),
            {"llama.attention.layer_norm_rms_epsilon is", "expected 1e-30 to 1"});
  refused(with("attention.layer_norm_rms_epsilon", std::nanf("")), {"is not a finite number"});
  for (const float base : {0.f, -5.f}) refused(with("rope.freq_base", base), {"rope: base is"});
  refused(with("rope.freq_base", INFINITY), {"llama.rope.freq_base is not a finite number"});
  for (const float factor : {0.f, -2.f})
    refused(with("rope.scaling.factor", factor), {"the linear factor is"});
}

TEST_F(GgufModel, TensorsAndTokensThatDoNotFit) {
  Parts parts;
  parts.tensors[3].second = {4, 5};
  refused(parts, {"blk.0.attn_q.weight has shape [5, 4], expected [4, 4]"});
  expect_broken([&] { outline_pretrained(path_); }, {"expected [4, 4]"});
  parts = {};
  parts.tensors.push_back({"rope_freqs.weight", {1'000'000}});
  refused(parts, {"rope_freqs.weight has shape [1000000], expected [1]"});
  for (const std::uint32_t id : {3u, ~0u}) {
    parts = {};
    parts.ids["bos_token_id"] = id;
    refused(parts, {"tokenizer.ggml.bos_token_id is " + std::to_string(id), "expected 0 to 2"});
  }
}

}  // namespace
}  // namespace rapt::test
