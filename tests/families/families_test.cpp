#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "families/pretrained.h"
#include "families/sentence/sentence.h"
#include "formats/tensors/safetensors.h"
#include "support/folder.h"

namespace rapt::test {
namespace {

namespace fs = std::filesystem;

struct FamilyCase {
  const char* name;
  const char* config;
};

// Tiny configs as Transformers writes them.
const FamilyCase cases[] = {
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

ModelConfig config_of(const FamilyCase& c) {
  Fields fields(parse_json(c.config, c.name), c.name);
  return family_of(c.name, "test").read(fields);
}

class Families : public testing::TestWithParam<FamilyCase> {};
INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(cases), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Families, ComesBackAsItWasWritten) {
  const Transformer model(config_of(GetParam()));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  write_pretrained(path, model, Tokenizer::bytes(), {.family = GetParam().name});
  const Pretrained again = read_pretrained(path);
  EXPECT_EQ(again.family, GetParam().name);
  EXPECT_TRUE(again.notices.empty()) << again.notices.front();
  ASSERT_EQ(again.model.parameters().size(), model.parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter &a = model.parameters()[i], &b = again.model.parameters()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_TRUE(std::equal(a.value.data(), a.value.data() + a.value.elements(), b.value.data()))
        << a.name;
  }
  EXPECT_FALSE(fs::exists(path + ".part"));
}

// Matrices of products and the embedding; vectors, positions and types become f32.
void expect_to_stay(Type type, const Transformer& model) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model", back = folder.path() + "/back";
  write_pretrained(path, model, Tokenizer::bytes(), {.type = type});
  const Pretrained stored = read_pretrained(path);
  const Pretrained wide = read_pretrained(path, {WeightForm::f32});
  EXPECT_TRUE(stored.notices.empty()) << stored.notices.front();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Tensor& a = stored.model.parameters()[i].value;
    const Tensor& b = wide.model.parameters()[i].value;
    const bool narrow = multiplied(model.parameters()[i].name) && a.shape().rank() == 2;
    EXPECT_EQ(a.type(), narrow ? type : Type::f32) << model.parameters()[i].name;
    const Tensor numbers = a.converted(Type::f32);
    EXPECT_TRUE(std::equal(b.data(), b.data() + b.elements(), numbers.data()))
        << model.parameters()[i].name;
  }
  write_pretrained(back, stored.model, Tokenizer::bytes(), {.type = type});
  const auto bytes = [](const std::string& name) {
    std::ifstream in(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(bytes(back + "/model.safetensors"), bytes(path + "/model.safetensors"));
}

TEST_P(Families, NumbersOf16BitsStayWhatTheyAre) {
  const Transformer model(config_of(GetParam()));
  expect_to_stay(Type::bf16, model);
  expect_to_stay(Type::f16, model);
}

TEST_P(Families, WeightsInF16GiveTheBitsOfTheSameInF32) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  write_pretrained(path, Transformer(config_of(GetParam())), {}, {.type = Type::f16});
  Pretrained wide = read_pretrained(path, {WeightForm::f32}), narrow = read_pretrained(path);
  const Tokens tokens = Tokens::one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const bool translates = wide.model.config().kind == ModelConfig::Kind::encoder_decoder;
  const auto logits = [&](Transformer& model, const Tokens& given) {
    Tape tape(Tape::Mode::forward);
    return model.logits(
        Tape::take(translates ? model.forward(tape, given, tokens) : model.forward(tape, given)));
  };
  for (const bool packed : {false, true}) {
    if (packed) wide.model.pack();
    if (packed) narrow.model.pack();
    for (const Tokens& given : {tokens, Tokens::one({3, 1})}) {
      const Tensor want = logits(wide.model, given), got = logits(narrow.model, given);
      EXPECT_EQ(std::memcmp(got.data(), want.data(), std::size_t(want.elements()) * sizeof(float)),
                0)
          << (packed ? "packed, " : "") << given.ids.size() << " tokens";
    }
  }
}

/// Rounded as it is read, and rounded before it was written.
TEST_P(Families, RoundedToF16GiveTheBitsOfAModelThatIsF16) {
  const TemporaryFolder folder;
  const Transformer model(config_of(GetParam()));
  write_pretrained(folder / "wide", model, {});
  write_pretrained(folder / "narrow", model, {}, {.type = Type::f16});
  const Pretrained rounded = read_pretrained(folder / "wide", {WeightForm::f16});
  const Pretrained stored = read_pretrained(folder / "narrow");
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter &a = rounded.model.parameters()[i], &b = stored.model.parameters()[i];
    EXPECT_EQ(a.type(), b.type()) << a.name;
    if (a.type() != Type::f16) continue;  // vectors keep all of f32
    EXPECT_EQ(std::memcmp(a.value.memory(), b.value.memory(), std::size_t(a.value.elements()) * 2),
              0)
        << a.name;
  }
}

TEST(FamiliesRead, NumbersThatF16CannotHoldAreRefused) {
  const TemporaryFolder folder;
  Transformer model(config_of(cases[1]));
  Parameter& large = *std::find_if(
      model.parameters().begin(), model.parameters().end(),
      [](const Parameter& p) { return multiplied(p.name) && p.value.shape().rank() == 2; });
  large.value.data()[3] = 65504;
  write_pretrained(folder / "fits", model, {});
  EXPECT_EQ(read_pretrained(folder / "fits", {WeightForm::f16}).notices.size(), 0u);
  large.value.data()[4] = -65520;  // the first that would be rounded to infinity
  write_pretrained(folder / "large", model, {});
  for (const bool allowed : {false, true})
    expect_broken(
        [&] {
          read_pretrained(folder / "large", {WeightForm::f16, allowed});
        },
        {"large: ", "weight has 1 of ", "numbers that are too large for f16", "bf16 or f32"});
  EXPECT_EQ(read_pretrained(folder / "large", {WeightForm::bf16}).notices.size(), 0u);
}

TEST(FamiliesRead, AModelInBf16RunsAndIsNearTheSameInF32) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  write_pretrained(path, Transformer(config_of(cases[1])), Tokenizer::bytes());
  Pretrained wide = read_pretrained(path), narrow = read_pretrained(path, {WeightForm::bf16});
  const Tokens tokens =
      Tokens::one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18});
  Tape tape(Tape::Mode::forward);
  const Tensor want = wide.model.logits(Tape::take(wide.model.forward(tape, tokens)));
  const auto expect_near = [&] {
    const Tensor got = narrow.model.logits(Tape::take(narrow.model.forward(tape, tokens)));
    for (Index i = 0; i < want.elements(); ++i)
      ASSERT_NEAR(got.data()[i], want.data()[i], 0.1) << i;  // logits of variance 1
  };
  expect_near();
  narrow.model.pack();
  expect_near();
  Tape train(Tape::Mode::train);
  EXPECT_THROW(narrow.model.forward(train, tokens), std::invalid_argument);
}

TEST_P(Families, ComesBackFromSeveralFiles) {
  const Transformer model(config_of(GetParam()));
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  write_pretrained(path, model, {}, {.shard_bytes = 4000});
  EXPECT_TRUE(fs::exists(path + "/model.safetensors.index.json"));
  EXPECT_EQ(read_pretrained(path).model.count(), model.count());
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

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class FamiliesRefused : public testing::Test {
 protected:
  FamiliesRefused() : path_(folder_.path() + "/model") {
    write_pretrained(path_, Transformer(config_of(cases[1])), {});
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
    return thrown([&] { read_pretrained(path_); });
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
  write_pretrained(path_, Transformer(config_of(cases[1])), {});
  change([](auto&, auto& tensors) { tensors[2] = Tensor({5}); });
  expect("has shape [5], expected [");
}

TEST_F(FamiliesRefused, NamesThatNobodyUsesAreSaid) {
  change([](auto& names, auto& tensors) {
    names.push_back("model.surprise");
    tensors.push_back(Tensor({3}));
  });
  const Pretrained read = read_pretrained(path_);
  ASSERT_EQ(read.notices.size(), 1u);
  EXPECT_NE(read.notices[0].find("\"model.surprise\" is not used"), std::string::npos);
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
  EXPECT_EQ(thrown([&] { read_pretrained(path_, {.allow_non_finite = true}); }), "");
}

TEST_F(FamiliesRefused, KeysThatWouldChangeTheNumbers) {
  const std::string begin = std::string(cases[1].config).substr(0, strlen(cases[1].config) - 1);
  for (const char* key : {"\"quantization_config\": {\"bits\": 4}", "\"sliding_window\": 4",
                          "\"auto_map\": {\"AutoModel\": \"m.py\"}", "\"num_local_experts\": 8",
                          "\"layer_types\": [\"full_attention\", \"sliding_attention\"]"}) {
    write_text(path_ + "/config.json", begin + ", " + key + "}");
    expect("what it asks for is not computed");
  }
  write_text(path_ + "/config.json",
             begin + R"(, "sliding_window": null, "num_local_experts": 1, "use_cache": true,
                        "layer_types": ["full_attention", "full_attention"]})");
  EXPECT_TRUE(read_pretrained(path_).notices.empty());
  write_text(path_ + "/config.json", begin + R"(, "novelty": 1, "x\n": 2})");
  ASSERT_EQ(read_pretrained(path_).notices.size(), 1u);
  EXPECT_NE(read_pretrained(path_).notices[0].find(R"(passed over: "novelty", "x\n")"),
            std::string::npos);
}

TEST(FamiliesWritten, AModelThatNoneIsLikeSaysWhy) {
  ModelConfig config;
  config.patterns = {"causal & dilated(2, 4, 0)"};
  config.positions = ModelConfig::Positions::learned;
  config.vocabulary = 19;
  config.width = 12;
  config.heads = 3;
  config.layers = 1;
  const TemporaryFolder folder;
  const std::string text =
      thrown([&] { write_pretrained(folder.path() + "/m", Transformer(config), {}); });
  EXPECT_NE(text.find("nearest is gpt2"), std::string::npos) << text;
  EXPECT_NE(text.find("dilated"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(folder.path() + "/m"));
}

TEST(FamiliesWritten, AnEncoderWithoutTokenTypesGetsOneThatAddsNothing) {
  ModelConfig config = config_of(*std::find_if(
      std::begin(cases), std::end(cases), [](auto& c) { return std::string(c.name) == "bert"; }));
  config.token_types = 0;
  config.epsilon = 1e-5;  // which DistilBERT cannot have
  Transformer model(config);
  const TemporaryFolder folder;
  write_pretrained(folder / "m", model, {});
  Pretrained again = read_pretrained(folder / "m");
  EXPECT_EQ(again.family, "bert");
  EXPECT_EQ(again.model.config().token_types, 1);
  const auto rows = [](Transformer& of) {
    Tape tape(Tape::Mode::forward);
    return Tape::take(of.forward(tape, Tokens::one({3, 1, 4, 1, 5})));
  };
  const Tensor a = rows(model), b = rows(again.model);
  EXPECT_TRUE(std::equal(a.data(), a.data() + a.elements(), b.data()));
}

TEST(FamiliesWritten, AChatTemplateComesBackByteForByte) {
  const TemporaryFolder folder;
  Pretrained loaded{"llama", Transformer(config_of(cases[1])), Tokenizer::bytes()};
  loaded.chat_template = "{{ bos_token }}\r\n{{ '[INST] naïve [/INST]' }}\n\n";
  write_pretrained(folder / "a", loaded.model, loaded.tokenizer, write_options(loaded));
  EXPECT_EQ(read_pretrained(folder / "a").chat_template, loaded.chat_template);
  loaded.chat_template = "";
  write_pretrained(folder / "b", loaded.model, loaded.tokenizer, write_options(loaded));
  EXPECT_FALSE(fs::exists(folder / "b/chat_template.jinja"));
}

TEST(FamiliesWritten, NothingIsOverwritten) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/mine", "x");
  const Transformer model(config_of(cases[0]));
  EXPECT_THROW(write_pretrained(folder.path(), model, {}), std::invalid_argument);
}

/// modules.json may name a folder beside it and nothing else.
TEST(SentenceModels, HaveTheirFilesInTheirFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "1_Pooling");
  write_text(folder / "1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  const auto modules = [&](const std::string& path) {
    write_text(folder / "modules.json", R"([{"type": "x.Pooling", "path": ")" + path + "\"}]");
    return read_pooling(folder.path(), 12);
  };
  EXPECT_EQ(modules("1_Pooling").kind, Pooling::Kind::first);
  for (const std::string& path : {std::string("../1_Pooling"), folder / "1_Pooling",
                                  std::string("a/.."), std::string("1_Pooling\\u0000")})
    expect_broken([&] { modules(path); }, {"modules.json", "within the model's folder"});
  expect_broken([&] { modules("2_Pooling"); }, {"2_Pooling/config.json", "missing"});
}

}  // namespace
}  // namespace rapt::test
