#include <gtest/gtest.h>

#include "families/family_config.h"
#include "support/temporary_folder.h"

// Files config.json with false values (numerics.md 2.3): one error that names the key, or a stated
// answer.
namespace rapt::test {
using namespace detail;
namespace {

const Json& good() {
  static const Json config = {{"model_type", "llama"},    {"vocab_size", 19},
                              {"hidden_size", 12},        {"num_hidden_layers", 2},
                              {"num_attention_heads", 6}, {"num_key_value_heads", 2},
                              {"intermediate_size", 20},  {"max_position_embeddings", 64}};
  return config;
}

FamilyConfig read(const Json& config) { return family_config_from(config, "config.json"); }

Json with(const char* key, const Json& value) {
  Json config = good();
  config[key] = value;
  return config;
}

void refused(const char* key, const Json& value, const std::vector<std::string>& words) {
  SCOPED_TRACE(std::string(key) + " = " + value.dump());
  expect_broken([&] { read(with(key, value)); }, words);
}

TEST(HostileConfig, TextsThatAreNoObject) {  // CF-01; a byte order mark: see Json
  for (const char* text : {"", "{", "{\"a\":1,}", "// words\n{}", "{\"a\": NaN}"})
    expect_broken([&] { parse_json(text, "config.json"); }, {"config.json: JSON at byte"});
  for (const Json& value : {Json(), Json::array(), Json(3)})
    expect_broken([&] { read(value); }, {"config.json"});
}

TEST(HostileConfig, CountsThatAreNone) {  // CF-02, CF-03, CF-04
  for (const Json& value : {Json(0), Json(-1), Json(1.5), Json("32"), Json(true), Json()})
    refused("num_attention_heads", value, {"num_attention_heads"});
  refused("hidden_size", 13, {"13 is no multiple of 6 heads"});
  refused("num_key_value_heads", 4, {"kv_heads is 4", "divisor of heads"});
  refused("num_key_value_heads", 12, {"kv_heads is 12"});
  refused("num_key_value_heads", 0, {"num_key_value_heads is 0, expected 1"});
}

TEST(HostileConfig, SizesBeyondAnyModel) {  // CF-05, CF-06, CF-11
  refused("hidden_size", Index{1} << 32, {"hidden_size"});
  refused("vocab_size", Index{1} << 40, {"vocab_size"});
  refused("num_hidden_layers", Index{1} << 31, {"num_hidden_layers is 2147483648"});
  refused("num_hidden_layers", 100'000, {"expected 1 to 4096"});
  refused("max_position_embeddings", 0, {"max_position_embeddings"});
  refused("max_position_embeddings", Index{1} << 62, {"max_position_embeddings"});
}

TEST(HostileConfig, RotationsThatCannotBe) {  // CF-09, CF-10, CF-13
  for (const Json& theta : {Json(0), Json(-1), Json(1e308), Json("10000")})
    refused("rope_theta", theta, {"rope_theta"});
  expect_broken([] { parse_json(R"({"rope_theta": 1e999})", "c"); }, {"1e999"});
  refused("rope_scaling", {{"rope_type", "spiral"}}, {"rope_scaling.rope_type", "spiral"});
  refused("rope_scaling", {{"rope_type", "linear"}, {"factor", 0}}, {"factor"});
  refused("rope_scaling", {{"rope_type", "linear"}}, {"factor", "missing"});
  refused("rope_scaling",
          {{"rope_type", "longrope"},
           {"short_factor", {1.0}},
           {"long_factor", {1.0, 2.0}},
           {"original_max_position_embeddings", 32}},
          {"config.json"});
  refused("head_dim", 3, {"head_dim is 3", "even"});
  refused("head_dim", Index{1} << 30, {"a head has 1073741824 numbers", "at most 512"});
}

TEST(HostileConfig, NormsWindowsAndTokens) {  // CF-12, CF-17, CF-18
  refused("rms_norm_eps", -1e-6, {"rms_norm_eps"});
  refused("rms_norm_eps", 1e10, {"rms_norm_eps"});
  refused("rms_norm_eps", 0, {"rms_norm_eps is 0, expected 1e-30 to 1"});  // a row of zeros is NaN
  refused("eos_token_id", -2, {"eos_token_id is -2"});
  refused("eos_token_id", {1, -2}, {"eos_token_id"});
  EXPECT_EQ(read(with("eos_token_id", {1, 2})).special_tokens.eos.size(), 2u);
  EXPECT_TRUE(read(with("eos_token_id", nullptr)).special_tokens.eos.empty());
  Json mistral = with("model_type", "mistral");
  for (const Json& window : {Json(0), Json(-4)}) {
    mistral["sliding_window"] = window;
    expect_broken([&] { read(mistral); }, {"sliding_window"});
  }
  mistral["sliding_window"] = 1000;  // larger than any text
  EXPECT_EQ(to_string(read(mistral).config.patterns[0]), "causal & window(999, 0)");
}

TEST(HostileConfig, ModelsAndCodeOfOthers) {  // CF-14, CF-15, CF-20
  refused("model_type", "mamba", {"model_type is \"mamba\"", "expected one of llama"});
  refused("auto_map", {{"AutoModel", "code.py--Model"}}, {"auto_map", "not computed"});
  expect_broken([] { parse_json(R"({"a": 1, "a": 2})", "c"); }, {"\"a\" occurs twice"});
  expect_broken([] { parse_json(std::string(100'000, '['), "c"); }, {"nested deeper than 64"});
  expect_broken([] { parse_json(std::string(200'000'000, ' '), "c"); }, {"the limit is"});
}

TEST(HostileConfig, PatternsThatCannotBe) {  // found by fuzzing
  const Json reformer = {{"model_type", "reformer"},
                         {"attn_layers", {"lsh"}},
                         {"axial_pos_shape", {4, 16}},
                         {"axial_pos_embds_dim", {64, 192}},
                         {"num_buckets", 3}};
  expect_broken([&] { read(reformer); }, {"config.json: lsh: a bucket factor is 3"});
}

TEST(HostileConfig, WhatIsNotTheModelsIsIgnored) {  // CF-16
  EXPECT_TRUE(read(with("torch_dtype", "float16")).warnings.empty());
  EXPECT_EQ(read(with("torch_dtype", "float16")).dtype, "float16");  // a warning where it is wrong
}

}  // namespace
}  // namespace rapt::test
