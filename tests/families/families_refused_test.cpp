#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "families/family_cases.h"
#include "formats/tensors/safetensors_file.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

class FamiliesRefused : public testing::Test {
 protected:
  FamiliesRefused() : path_(folder_.path() + "/model") {
    save_pretrained(path_, Transformer(config_of(cases[1])), {});
  }
  /// Writes the weights again, changed.
  void change(const std::function<void(std::vector<std::string>&, std::vector<Tensor>&)>& change) {
    std::vector<std::string> names;
    std::vector<Tensor> tensors;
    {
      const SafetensorsFile file(path_ + "/model.safetensors");
      for (const StoredTensor& tensor : file.tensors()) {
        names.push_back(tensor.name);
        tensors.push_back(file.read(tensor.name));
      }
    }
    change(names, tensors);
    fs::remove(path_ + "/model.safetensors");
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < names.size(); ++i) named.push_back({names[i], tensors[i]});
    write_safetensors(path_ + "/model.safetensors", named);
  }
  std::string message() const {
    return thrown([&] { load_pretrained(path_); });
  }
  void expect(const std::string& part) const {
    EXPECT_NE(message().find(part), std::string::npos) << message();
  }

  TemporaryFolder folder_;
  std::string path_;
};

TEST_F(FamiliesRefused, TensorsThatAreMissingOrMisshapen) {
  change([](auto& names, auto&) { names[3] = "model.other"; });
  expect("there is no model.");
  write_text(path_ + "/config.json", cases[1].config);
  fs::remove_all(path_);
  save_pretrained(path_, Transformer(config_of(cases[1])), {});
  change([](auto&, auto& tensors) { tensors[2] = Tensor({5}); });
  expect("has shape [5], expected [");
}

TEST_F(FamiliesRefused, NamesThatNobodyUsesAreSaid) {
  change([](auto& names, auto& tensors) {
    names.push_back("model.surprise");
    tensors.push_back(Tensor({3}));
  });
  const Pretrained read = load_pretrained(path_);
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_NE(read.warnings[0].find("\"model.surprise\" is not used"), std::string::npos);
}

TEST_F(FamiliesRefused, ConfigsThatAskForSomethingElse) {
  const std::pair<const char*, const char*> wrong[] = {
      {"{}", "model_type"},
      {R"({"model_type": "mamba"})", "expected one of llama"},
      {R"({"model_type": "llama"})", "vocab_size"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})",
       "scale_attn_by_inverse_layer_idx"},
      {R"({"model_type": "gpt2", "n_head": 7})", "no multiple of 7 heads"},
      {R"({"model_type": "gpt2", "activation_function": "mish"})", "activation_function"},
      {"[1, 2", "config.json"},
  };
  for (const auto& [text, part] : wrong) {
    write_text(path_ + "/config.json", text);
    expect(part);
  }
}

TEST(FamiliesRead, DistilbertKeysThatAskForSomethingElse) {
  const auto refused = [](const char* more, const std::string& words) {
    const std::string text = std::string(R"({"model_type": "distilbert", )") + more + "}";
    expect_broken([&] { family_config_from(parse_json(text, "c"), "c"); }, {"c: ", words});
  };
  refused(R"("tie_weights_": false)", "tie_weights_ is false, expected true");
  refused(R"("tie_word_embeddings": false)", "tie_word_embeddings is false, expected true");
  refused(R"("activation": "mish")", "activation is \"mish\"");
  refused(R"("n_heads": 0)", "n_heads is 0");
  refused(R"("n_heads": 7)", "heads");
  refused(R"("is_decoder": true)", "is_decoder");
}

TEST_F(FamiliesRefused, ConfigsLargerThanTheirFile) {
  write_text(path_ + "/config.json",
             R"({"model_type": "llama", "vocab_size": 2000000000, "hidden_size": 2000000000,
                 "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4})");
  expect("expected");
}

TEST_F(FamiliesRefused, LayersThatAreNotThereBeforeATableOfThemIsMade) {
  std::string text = cases[1].config;
  text.replace(text.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 4096");
  write_text(path_ + "/config.json", text);
  expect("there is no weight of layer 4095 of the 4096");
  text.replace(text.find("4096"), 4, "5000");
  write_text(path_ + "/config.json", text);
  expect("num_hidden_layers is 5000, expected 1 to 4096");
}

TEST_F(FamiliesRefused, NumbersThatAreNotFinite) {
  change([](auto&, auto& tensors) {
    tensors[2].numbers()[1] = std::numeric_limits<float>::quiet_NaN();
    tensors[2].numbers()[3] = -std::numeric_limits<float>::infinity();
  });
  expect(" has 2 of ");
  expect("infinite or NaN");
  EXPECT_EQ(thrown([&] { load_pretrained(path_, {.allow_non_finite = true}); }), "");
}

TEST_F(FamiliesRefused, KeysThatWouldChangeTheNumbers) {
  const std::string begin = std::string(cases[1].config).substr(0, strlen(cases[1].config) - 1);
  for (const char* key : {"\"quantization_config\": {\"bits\": 4}", "\"sliding_window\": 4",
                          "\"auto_map\": {\"AutoModel\": \"m.py\"}", "\"num_local_experts\": 8",
                          "\"layer_types\": [\"full_attention\", \"sliding_attention\"]"}) {
    write_text(path_ + "/config.json", begin + ", " + key + "}");
    expect("what it is for is not computed");
  }
  write_text(path_ + "/config.json",
             begin + R"(, "sliding_window": null, "num_local_experts": 1, "use_cache": true,
                        "layer_types": ["full_attention", "full_attention"]})");
  EXPECT_TRUE(load_pretrained(path_).warnings.empty());
  write_text(path_ + "/config.json", begin + R"(, "novelty": 1, "x\n": 2})");
  ASSERT_EQ(load_pretrained(path_).warnings.size(), 1u);
  EXPECT_NE(load_pretrained(path_).warnings[0].find(R"(unknown and ignored: "novelty", "x\n")"),
            std::string::npos);
}

}  // namespace
}  // namespace rapt::test
