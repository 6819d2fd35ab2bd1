#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "families/family_cases.h"
#include "families/model_tensors.h"
#include "families/sentence/sentence_config.h"
#include "formats/tensors/safetensors_file.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

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
  save_pretrained(path, model, Tokenizer::bytes(), {.family = GetParam().name});
  const Pretrained again = load_pretrained(path);
  EXPECT_EQ(again.family, GetParam().name);
  EXPECT_TRUE(again.warnings.empty()) << again.warnings.front();
  expect_same_parameters(again.model, model);
  EXPECT_FALSE(fs::exists(path + ".part"));
}

// Matrices of products and the embedding; vectors, positions and types become f32.
void expect_to_stay(Type type, const Transformer& model) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model", back = folder.path() + "/back";
  save_pretrained(path, model, Tokenizer::bytes(), {.type = type});
  const Pretrained stored = load_pretrained(path);
  const Pretrained wide = load_pretrained(path, {WeightType::f32});
  EXPECT_TRUE(stored.warnings.empty()) << stored.warnings.front();
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Tensor& a = stored.model.parameters()[i].value;
    const Tensor& b = wide.model.parameters()[i].value;
    const bool narrow = multiplied(model.parameters()[i].name) && a.shape().rank() == 2;
    EXPECT_EQ(a.type(), narrow ? type : Type::f32) << model.parameters()[i].name;
    const Tensor numbers = a.converted(Type::f32);
    EXPECT_TRUE(std::equal(b.data(), b.data() + b.elements(), numbers.data()))
        << model.parameters()[i].name;
  }
  save_pretrained(back, stored.model, Tokenizer::bytes(), {.type = type});
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
  save_pretrained(path, Transformer(config_of(GetParam())), {}, {.type = Type::f16});
  Pretrained wide = load_pretrained(path, {WeightType::f32}), narrow = load_pretrained(path);
  const Tokens tokens = Tokens::one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const bool translates = wide.model.config().kind == ModelConfig::Kind::encoder_decoder;
  const auto logits = [&](Transformer& model, const Tokens& given) {
    Tape tape(Tape::Mode::forward);
    return model.logits(Tape::release(translates ? model.forward(tape, given, tokens)
                                                 : model.forward(tape, given)));
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
  save_pretrained(folder / "wide", model, {});
  save_pretrained(folder / "narrow", model, {}, {.type = Type::f16});
  const Pretrained rounded = load_pretrained(folder / "wide", {WeightType::f16});
  const Pretrained stored = load_pretrained(folder / "narrow");
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
  save_pretrained(folder / "fits", model, {});
  EXPECT_EQ(load_pretrained(folder / "fits", {WeightType::f16}).warnings.size(), 0u);
  large.value.data()[4] = -65520;  // the first that would be rounded to infinity
  save_pretrained(folder / "large", model, {});
  for (const bool allowed : {false, true})
    expect_broken(
        [&] {
          load_pretrained(folder / "large", {WeightType::f16, allowed});
        },
        {"large: ", "weight has 1 of ", "numbers that are too large for f16", "bf16 or f32"});
  EXPECT_EQ(load_pretrained(folder / "large", {WeightType::bf16}).warnings.size(), 0u);
}

TEST(FamiliesRead, AModelInBf16RunsAndIsNearTheSameInF32) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  save_pretrained(path, Transformer(config_of(cases[1])), Tokenizer::bytes());
  Pretrained wide = load_pretrained(path), narrow = load_pretrained(path, {WeightType::bf16});
  const Tokens tokens =
      Tokens::one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18});
  Tape tape(Tape::Mode::forward);
  const Tensor want = wide.model.logits(Tape::release(wide.model.forward(tape, tokens)));
  const auto expect_near = [&] {
    const Tensor got = narrow.model.logits(Tape::release(narrow.model.forward(tape, tokens)));
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
  save_pretrained(path, model, {}, {.max_shard_bytes = 4000});
  EXPECT_TRUE(fs::exists(path + "/model.safetensors.index.json"));
  EXPECT_EQ(load_pretrained(path).model.count(), model.count());
}

TEST(FamiliesWritten, AModelThatNoneIsLikeSaysWhy) {
  ModelConfig config;
  config.patterns = {Pattern::parse("causal & dilated(2, 4, 0)")};
  config.positions = ModelConfig::Positions::learned;
  config.vocab_size = 19;
  config.hidden_size = 12;
  config.heads = 3;
  config.layers = 1;
  const TemporaryFolder folder;
  const std::string text =
      thrown([&] { save_pretrained(folder.path() + "/m", Transformer(config), {}); });
  EXPECT_NE(text.find("nearest is gpt2"), std::string::npos) << text;
  EXPECT_NE(text.find("dilated"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(folder.path() + "/m"));
}

TEST(FamiliesWritten, AnEncoderWithoutTokenTypesGetsOneThatAddsNothing) {
  ModelConfig config = config_of(*std::find_if(
      std::begin(cases), std::end(cases), [](auto& c) { return std::string(c.name) == "bert"; }));
  config.type_vocab_size = 0;
  config.norm_epsilon = 1e-5;  // which DistilBERT cannot have
  Transformer model(config);
  const TemporaryFolder folder;
  save_pretrained(folder / "m", model, {});
  Pretrained again = load_pretrained(folder / "m");
  EXPECT_EQ(again.family, "bert");
  EXPECT_EQ(again.model.config().type_vocab_size, 1);
  const auto rows = [](Transformer& of) {
    Tape tape(Tape::Mode::forward);
    return Tape::release(of.forward(tape, Tokens::one({3, 1, 4, 1, 5})));
  };
  const Tensor a = rows(model), b = rows(again.model);
  EXPECT_TRUE(std::equal(a.data(), a.data() + a.elements(), b.data()));
}

TEST(FamiliesWritten, AChatTemplateComesBackByteForByte) {
  const TemporaryFolder folder;
  Pretrained loaded{"llama", Transformer(config_of(cases[1])), Tokenizer::bytes()};
  loaded.chat_template = "{{ bos_token }}\r\n{{ '[INST] naïve [/INST]' }}\n\n";
  save_pretrained(folder / "a", loaded.model, loaded.tokenizer, save_options(loaded));
  EXPECT_EQ(load_pretrained(folder / "a").chat_template, loaded.chat_template);
  loaded.chat_template.reset();
  save_pretrained(folder / "b", loaded.model, loaded.tokenizer, save_options(loaded));
  EXPECT_FALSE(fs::exists(folder / "b/chat_template.jinja"));
}

TEST(FamiliesWritten, NothingIsOverwritten) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/mine", "x");
  const Transformer model(config_of(cases[0]));
  EXPECT_THROW(save_pretrained(folder.path(), model, {}), std::invalid_argument);
}

/// modules.json may name a folder next to it and nothing else.
TEST(SentenceModels, HaveTheirFilesInTheirFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "1_Pooling");
  write_text(folder / "1_Pooling/config.json", R"({"pooling_mode": "cls"})");
  const auto modules = [&](const std::string& path) {
    write_text(folder / "modules.json", R"([{"type": "x.Pooling", "path": ")" + path + "\"}]");
    return read_pooling(folder.path(), 12);
  };
  EXPECT_EQ(modules("1_Pooling").kind, Pooling::Kind::cls);
  for (const std::string& path : {std::string("../1_Pooling"), folder / "1_Pooling",
                                  std::string("a/.."), std::string("1_Pooling\\u0000")})
    expect_broken([&] { modules(path); }, {"modules.json", "within the model's folder"});
  expect_broken([&] { modules("2_Pooling"); }, {"2_Pooling/config.json", "missing"});
}

}  // namespace
}  // namespace rapt::test
