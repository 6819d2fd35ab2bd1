#include <gtest/gtest.h>

#include <cmath>

#include "families/stored_tensors.h"
#include "rapt/models/pretrained.h"
#include "support/gguf_bytes.h"
#include "support/temporary_folder.h"

// GGUF files whose header is sound, but which make no model (numerics.md 2.1, 2.3).
namespace rapt::test {
using namespace detail;
namespace {

using Sizes = std::vector<std::uint64_t>;

struct Parts {
  std::string architecture = "llama";
  std::map<std::string, std::uint32_t> counts = {{"embedding_length", 4},
                                                 {"block_count", 1},
                                                 {"attention.head_count", 2},
                                                 {"attention.head_count_kv", 1},
                                                 {"feed_forward_length", 2}};
  std::map<std::string, float> reals = {};
  std::map<std::string, std::uint32_t> ids = {};  // below tokenizer.ggml
  std::optional<bool> causal = {};
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
    b.begin(parts.tensors.size(), 2 + parts.counts.size() + parts.reals.size() + parts.ids.size() +
                                      (parts.causal ? 1 : 0));
    const std::string section = parts.architecture + ".";
    b.text_entry("general.architecture", parts.architecture);
    b.text_entry("tokenizer.chat_template", parts.chat_template);
    for (const auto& [key, value] : parts.counts) b.entry(section + key, 4, value);
    for (const auto& [key, value] : parts.reals) b.entry(section + key, 6, value);
    if (parts.causal) b.entry(section + "attention.causal", 7, *parts.causal);
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
    return load_pretrained(path_);
  }
  void refused(const Parts& parts, std::vector<std::string> words) const {
    words.push_back(path_);
    expect_broken([&] { read(parts); }, words);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "a.gguf";
};

TEST_F(GgufModel, IsReadAndWhatNobodyUsesIsTold) {
  EXPECT_TRUE(read({}).warnings.empty());
  Parts parts;
  parts.tensors.push_back({"x\x1b[31m", {4}});
  const Pretrained made = read(parts);
  ASSERT_EQ(made.warnings.size(), 1u);
  EXPECT_NE(made.warnings[0].find(R"("x\u001b[31m" is not used)"), std::string::npos);
}

TEST_F(GgufModel, AChatTemplateThatIsNoTextGivesAWarning) {
  EXPECT_EQ(read({.chat_template = "<|user|>"}).chat_template, "<|user|>");
  const Pretrained made = read({.chat_template = "<|user|>\xff"});
  EXPECT_EQ(made.chat_template, std::nullopt);
  ASSERT_EQ(made.warnings.size(), 1u);
  EXPECT_NE(made.warnings[0].find("no UTF-8 at byte 8"), std::string::npos) << made.warnings[0];
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
  expect_broken([&] { pretrained_info(path_); }, {"expected [4, 4]"});
  parts = {};
  parts.tensors.push_back({"rope_freqs.weight", {1'000'000}});
  refused(parts, {"rope_freqs.weight has shape [1000000], expected [1]"});
  for (const std::uint32_t id : {3u, ~0u}) {
    parts = {};
    parts.ids["bos_token_id"] = id;
    refused(parts, {"tokenizer.ggml.bos_token_id is " + std::to_string(id), "expected 0 to 2"});
  }
}

// A sentence encoder: other keys, other tensors, the same care.
Parts bert() {
  Parts parts;
  parts.architecture = "bert";
  parts.counts = {{"embedding_length", 4},    {"block_count", 1},    {"attention.head_count", 2},
                  {"feed_forward_length", 3}, {"context_length", 5}, {"pooling_type", 1}};
  parts.reals = {{"attention.layer_norm_epsilon", 1e-12f}};
  parts.causal = false;
  parts.ids = {{"token_type_count", 2}};
  parts.tensors = {{"token_embd.weight", {4, 7}},
                   {"token_types.weight", {4, 2}},
                   {"position_embd.weight", {4, 5}}};
  const auto norm_or_layer = [&](const std::string& name, const Sizes& weight) {
    parts.tensors.push_back({name + ".weight", weight});
    parts.tensors.push_back({name + ".bias", {weight.back()}});
  };
  norm_or_layer("token_embd_norm", {4});
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
    norm_or_layer(std::string("blk.0.") + name, {4, 4});
  norm_or_layer("blk.0.attn_output_norm", {4});
  norm_or_layer("blk.0.ffn_up", {4, 3});
  norm_or_layer("blk.0.ffn_down", {3, 4});
  norm_or_layer("blk.0.layer_output_norm", {4});
  return parts;
}

TEST_F(GgufModel, BertIsAnEncoderThatPoolsAsItsFileSays) {
  Parts parts = bert();
  const Pretrained made = read(parts);
  EXPECT_TRUE(made.warnings.empty());
  EXPECT_EQ(made.family, "bert");
  const ModelConfig& config = made.model.config();
  EXPECT_EQ(config.kind, ModelConfig::Kind::encoder);
  EXPECT_EQ(config.norm_epsilon, 1e-12);  // as it was meant, not as f32 has it
  EXPECT_EQ(config.type_vocab_size, 2);
  EXPECT_FALSE(config.head);
  EXPECT_EQ(made.pooling.kind, Pooling::Kind::mean);
  EXPECT_TRUE(made.pooling.normalize);
  EXPECT_EQ(pretrained_info(path_).config.max_positions, 5);
  parts.counts["pooling_type"] = 2;
  EXPECT_EQ(read(parts).pooling.kind, Pooling::Kind::cls);
  parts.counts.erase("pooling_type");  // as a folder without modules.json
  EXPECT_FALSE(read(parts).pooling.normalize);
  // Of DistilBERT, which has no types.
  parts.tensors.erase(parts.tensors.begin() + 1);
  parts.ids["token_type_count"] = 1;
  EXPECT_EQ(read(parts).model.config().type_vocab_size, 0);
}

TEST_F(GgufModel, BertKeysThatCannotBe) {
  const auto with = [&](const char* key, std::uint32_t value) {
    Parts parts = bert();
    parts.counts[key] = value;
    return parts;
  };
  refused(with("attention.head_count", 0), {"bert.attention.head_count is 0, expected 1 to"});
  refused(with("attention.head_count", 3), {"heads"});
  refused(with("attention.head_count_kv", 1), {"bert.attention.head_count_kv is not 2"});
  refused(with("context_length", 0), {"bert.context_length is 0"});
  refused(with("context_length", 6), {"position_embd.weight has shape [5, 4], expected [6, 4]"});
  refused(with("block_count", 4096), {"no weight of layer 4095 of the 4096"});
  refused(with("embedding_length_out", 3), {"bert.embedding_length_out is not 4"});
  refused(with("pooling_type", 3), {"bert.pooling_type is 3 (the last token), expected 0"});
  refused(with("pooling_type", 4), {"bert.pooling_type is 4 (the score of a ranking head)"});
  refused(with("pooling_type", ~0u), {"bert.pooling_type is 4294967295, expected 0 to 4"});
  refused(with("attention.max_alibi_bias", 8), {"bert.attention.max_alibi_bias is not 0"});
  refused(with("attention.sliding_window", 4), {"bert.attention.sliding_window is not 0"});
  for (const char* key : {"embedding_length", "block_count", "attention.head_count",
                          "feed_forward_length", "context_length"}) {
    Parts parts = bert();
    parts.counts.erase(key);
    refused(parts, {"has no key \"bert." + std::string(key)});
    expect_broken([&] { pretrained_info(path_); }, {"has no key"});
  }
  Parts parts = bert();
  parts.reals.clear();
  refused(parts, {"has no key \"bert.attention.layer_norm_epsilon"});
  parts.reals = {{"attention.layer_norm_epsilon", 0}};
  refused(parts, {"bert.attention.layer_norm_epsilon is 0, expected 1e-30 to 1"});
  parts = bert();
  parts.causal = true;
  refused(parts, {"bert.attention.causal is true, expected false"});
  parts.causal.reset();
  refused(parts, {"has no key \"bert.attention.causal"});
}

TEST_F(GgufModel, BertTensorsThatCannotBe) {
  const Parts good = bert();
  for (std::size_t i = 0; i < good.tensors.size(); ++i) {
    const std::string& name = good.tensors[i].first;
    Parts parts = bert();
    parts.tensors.erase(parts.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(parts, {name});
    parts = bert();
    // Another length of a row; that of the embedding is what the file says of the width.
    ++parts.tensors[i].second[0];
    refused(parts, {name + " has shape"});
    expect_broken([&] { pretrained_info(path_); }, {name + " has shape"});
  }
  // What would change the numbers and is not computed.
  for (const char* name : {"blk.1.attn_q.weight", "blk.0.attn_q_norm.weight", "cls.weight",
                           "cls.output.bias", "dense_2.weight"}) {
    Parts parts = bert();
    parts.tensors.push_back({name, {4}});
    refused(parts, {std::string("\"") + name + "\" is a weight that a bert does not have in rapt"});
    expect_broken([&] { pretrained_info(path_); }, {"does not have in rapt"});
  }
  Parts parts = bert();
  parts.ids["token_type_count"] = 3;
  refused(parts, {"token_types.weight has shape [2, 4], expected [3, 4]"});
  parts.ids["token_type_count"] = 0;
  refused(parts, {"tokenizer.ggml.token_type_count is 0, expected 1 to"});
}

Parts gpt2() {
  Parts parts;
  parts.architecture = "gpt2";
  parts.counts = {{"embedding_length", 4},
                  {"block_count", 1},
                  {"attention.head_count", 2},
                  {"feed_forward_length", 3},
                  {"context_length", 5}};
  parts.reals = {{"attention.layer_norm_epsilon", 1e-5f}};
  parts.tensors = {{"token_embd.weight", {4, 7}},        {"position_embd.weight", {4, 5}},
                   {"output_norm.weight", {4}},          {"output_norm.bias", {4}},
                   {"blk.0.attn_norm.weight", {4}},      {"blk.0.attn_norm.bias", {4}},
                   {"blk.0.attn_qkv.weight", {4, 12}},   {"blk.0.attn_qkv.bias", {12}},
                   {"blk.0.attn_output.weight", {4, 4}}, {"blk.0.attn_output.bias", {4}},
                   {"blk.0.ffn_norm.weight", {4}},       {"blk.0.ffn_norm.bias", {4}},
                   {"blk.0.ffn_up.weight", {4, 3}},      {"blk.0.ffn_up.bias", {3}},
                   {"blk.0.ffn_down.weight", {3, 4}},    {"blk.0.ffn_down.bias", {4}}};
  return parts;
}

TEST_F(GgufModel, Gpt2HasItsOwnHeadIfTheFileHasOne) {
  Parts parts = gpt2();
  EXPECT_TRUE(read(parts).model.config().tied_embeddings);
  EXPECT_EQ(read(parts).model.config().norm_epsilon, 1e-5);
  parts.tensors.push_back({"output.weight", {4, 7}});
  EXPECT_FALSE(read(parts).model.config().tied_embeddings);
  for (std::size_t i = 0; i < gpt2().tensors.size(); ++i) {
    parts = gpt2();
    parts.tensors.erase(parts.tensors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(parts, {gpt2().tensors[i].first});
    parts = gpt2();
    ++parts.tensors[i].second[0];
    refused(parts, {gpt2().tensors[i].first + " has shape"});
  }
  for (const auto& [key, value] : gpt2().counts) {
    parts = gpt2();
    parts.counts.erase(key);
    refused(parts, {"has no key \"gpt2." + key});
    parts.counts[key] = 0;
    refused(parts, {"gpt2." + key + " is 0, expected 1 to"});
  }
  parts = gpt2();
  parts.tensors.push_back({"blk.0.ffn_gate.weight", {4, 3}});
  refused(parts, {"\"blk.0.ffn_gate.weight\" is a weight that a gpt2 does not have in rapt"});
}

}  // namespace
}  // namespace rapt::test
