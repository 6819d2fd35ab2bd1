#include <gtest/gtest.h>

#include "formats/config/json.h"
#include "rapt/models/pretrained.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

Transformer decoder() {
  ModelConfig config;
  config.vocab_size = 258;
  config.hidden_size = 12;
  config.heads = 3;
  config.layers = 1;
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 32;
  config.patterns = {causal()};
  return Transformer(config);
}

/// A folder whose tokenizer has <|endoftext|> and <|padding|>.
class TokensOfAFolder : public testing::Test {
 protected:
  TokensOfAFolder() { save_pretrained(path_, decoder(), Tokenizer::bytes()); }

  Pretrained with(const std::string& config) {
    put(path_ + "/tokenizer_config.json", config);
    return load_pretrained(path_);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "m";
};

TEST_F(TokensOfAFolder, ComeBackWithTheirRoles) {
  const Pretrained loaded = with(R"({"bos_token": "<|padding|>", "eos_token": null, "new": [1],
      "unk_token": {"content": "<|endoftext|>", "lstrip": false}, "model_max_length": 77})");
  EXPECT_TRUE(loaded.warnings.empty());
  save_pretrained(folder_ / "b", loaded.model, loaded.tokenizer, save_options(loaded));
  EXPECT_EQ(parse_json(get(folder_ / "b/tokenizer_config.json"), "b"),
            Json({{"tokenizer_class", "PreTrainedTokenizerFast"},
                  {"model_input_names", {"input_ids", "attention_mask"}},
                  {"bos_token", "<|padding|>"},
                  {"unk_token", "<|endoftext|>"},
                  {"model_max_length", 77}}));
  const SpecialTokens special = load_tokenizer(folder_ / "b").special_tokens();
  EXPECT_EQ(special.bos, 257);
  EXPECT_EQ(special.unk, 256);
  EXPECT_EQ(special.eos, std::nullopt);
}

TEST_F(TokensOfAFolder, AreGuessedOnlyWhereNoFileNamesThem) {
  EXPECT_EQ(with(R"({"model_max_length": 1e30})").tokenizer->eos(), 256);
  EXPECT_EQ(load_pretrained(path_).model_max_length, std::nullopt);
  put(path_ + "/special_tokens_map.json", R"({"eos_token": {"content": "<|padding|>"}})");
  EXPECT_EQ(with(R"({"eos_token": "<|endoftext|>"})").tokenizer->eos(), 257);
  EXPECT_EQ(with(R"({"eos_token": "<|endoftext|>", "added_tokens_decoder": {}})").tokenizer->eos(),
            256);
}

TEST_F(TokensOfAFolder, ThatAreHostileAreToldOrRefused) {
  const Pretrained loaded = with(R"({"pad_token": "<n\none>", "eos_token": "<|padding|>"})");
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_NE(loaded.warnings[0].find(R"(pad_token is "<n\none>", which is ignored)"),
            std::string::npos);
  EXPECT_EQ(loaded.tokenizer->pad(), std::nullopt);
  for (const char* config : {R"({"pad_token": 3})", R"({"pad_token": {"content": []}})",
                             R"({"model_max_length": "x"})", "[]"})
    expect_broken([&] { with(config); }, {"tokenizer_config.json", "expected"});
}

}  // namespace
}  // namespace rapt::test
