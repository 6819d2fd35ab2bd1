#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "families/family_cases.h"
#include "formats/tensors/safetensors_file.h"
#include "rapt/models/generate.h"
#include "support/refused.h"
#include "support/temporary_folder.h"

// Folders whose files do not fit one another (numerics.md 2.2, 2.3).
namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

const char* const llama = R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 12,
    "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 20,
    "tie_word_embeddings": true})";

class HostileFolder : public testing::Test {
 protected:
  HostileFolder() {
    Fields fields(parse_json(llama, "llama"), "llama");
    save_pretrained(path_, Transformer(family_of("llama", "test").read(fields)), {});
  }
  Json config() const { return parse_json(get(path_ + "/config.json"), "config.json"); }
  void with(const char* key, const Json& value) const {
    Json changed = config();
    changed[key] = value;
    put(path_ + "/config.json", changed.dump());
  }
  void add(const std::string& name, const Tensor& numbers) const {
    std::vector<std::string> names{name};
    std::vector<Tensor> tensors;
    tensors.push_back(numbers.clone());
    {
      const SafetensorsFile file(path_ + "/model.safetensors");
      for (const StoredTensor& tensor : file.tensors()) {
        names.push_back(tensor.name);
        tensors.push_back(file.read(tensor.name));
      }
    }
    fs::remove(path_ + "/model.safetensors");
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < names.size(); ++i) named.push_back({names[i], tensors[i]});
    write_safetensors(path_ + "/model.safetensors", named);
  }
  void refused(const std::vector<std::string>& words) const {
    expect_broken([&] { load_pretrained(path_); }, words);
  }
  void warned(const std::vector<std::string>& words) const {
    const Pretrained read = load_pretrained(path_);
    ASSERT_EQ(read.warnings.size(), 1u);
    for (const std::string& word : words)
      EXPECT_NE(read.warnings[0].find(word), std::string::npos) << read.warnings[0];
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "model";
};

TEST_F(HostileFolder, VocabSizeAndRowsOfTheEmbeddingDiffer) {  // CF-07, CF-08
  for (const Index vocab_size : {18, 20}) {
    with("vocab_size", vocab_size);
    refused(
        {"model.embed_tokens.weight has shape [19, 12], expected [" + std::to_string(vocab_size)});
  }
  with("vocab_size", 19);
  Pretrained read = load_pretrained(path_);
  Tape tape(Tape::Mode::forward);
  for (const std::int32_t id : {-1, 19, 1 << 30})
    expect_refused(
        [&] {
          read.model.forward(tape, Tokens::one({1, id}));
        },
        {"id 1 is " + std::to_string(id), "19 rows"});
}

TEST_F(HostileFolder, TheFileSaysWhatWeightsAre) {  // CF-16
  with("dtype", "bfloat16");
  warned({"config.json says bfloat16, but the weights are float32"});
  for (const Json& word : {Json("float32"), Json("auto"), Json(3), Json(nullptr)}) {
    with("dtype", word);
    EXPECT_TRUE(load_pretrained(path_).warnings.empty()) << word;
  }
}

TEST_F(HostileFolder, TokensBeyondTheVocabularyGiveWarnings) {  // CF-18
  for (const char* key :
       {"eos_token_id", "bos_token_id", "pad_token_id", "decoder_start_token_id"}) {
    with(key, 19);
    warned({std::string(key) + " is 19", "the vocabulary ends at 18"});
    with(key, nullptr);
  }
  with("eos_token_id", {3, 19});
  warned({"eos_token_id is 19"});
  EXPECT_EQ(load_pretrained(path_).special_tokens.eos, std::vector<std::int32_t>{3});
}

TEST_F(HostileFolder, AHeadThatIsStoredApartIsTheHead) {  // CF-19
  const Tensor embedding = load_pretrained(path_).model.parameter("embedding.weight").value.clone();
  add("lm_head.weight", embedding);
  Pretrained same = load_pretrained(path_);
  EXPECT_TRUE(same.warnings.empty());
  EXPECT_TRUE(same.model.config().tied_embeddings);
  fs::remove_all(path_);
  Fields fields(parse_json(llama, "llama"), "llama");
  save_pretrained(path_, Transformer(family_of("llama", "test").read(fields)), {});
  Tensor other = embedding.clone();
  other.data()[7] += 1;
  add("lm_head.weight", other);
  warned({"ties the head", "lm_head.weight differs from model.embed_tokens.weight; it is used"});
  Pretrained apart = load_pretrained(path_);
  EXPECT_FALSE(apart.model.config().tied_embeddings);
  EXPECT_EQ(apart.model.parameter("head.weight").value.data()[7], other.data()[7]);
  EXPECT_EQ(apart.model.parameter("embedding.weight").value.data()[7], embedding.data()[7]);
}

TEST_F(HostileFolder, GenerationSettingsOfOthersAreNotTaken) {  // CF-21
  put(path_ + "/generation_config.json",
      R"({"temperature": -1, "top_k": -5, "top_p": 2, "eos_token_id": [4, 5], "x": 1e300})");
  EXPECT_EQ(load_pretrained(path_).special_tokens.eos, (std::vector<std::int32_t>{4, 5}));
  put(path_ + "/generation_config.json", R"({"temperature": NaN})");
  refused({"generation_config.json: JSON at byte"});
  put(path_ + "/generation_config.json", R"({"eos_token_id": "x"})");
  refused({"generation_config.json: eos_token_id is \"x\", expected a whole number"});
  for (const double temperature : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    expect_refused([&] { Sampling{.temperature = temperature}.check(); }, {"temperature is"});
  expect_refused([] { Sampling{.top_k = -5}.check(); }, {"top_k is -5, expected 1 or more"});
  for (const double top_p : {0.0, 2.0})
    expect_refused([&] { Sampling{.top_p = top_p}.check(); }, {"top_p is", "more than 0"});
}

TEST_F(HostileFolder, NamesInWarningsAreSafeToPrint) {  // ST-27
  add("x\x1b[31m\n", Tensor({3}));
  warned({R"("x\u001b[31m\n" is not used by a model of type llama)"});
}

TEST_F(HostileFolder, KnowsItsTrainedContext) {
  EXPECT_EQ(trained_context(load_pretrained(path_)), 2048);
  with("max_position_embeddings", 77);
  Pretrained read = load_pretrained(path_);
  EXPECT_EQ(trained_context(read), 77);
  read.family = "rapt";  // trained at any length
  EXPECT_EQ(trained_context(read), std::nullopt);
}

/// Tensors of a GiB each, which are holes in the file: memory would be taken one by one.
TEST_F(HostileFolder, MoreThanTheMachineHasIsRefusedBeforeAnyIsRead) {  // ST-33, CF-05
  const Index count = 4096, bytes = Index{1} << 30;
  std::string header = "{";
  for (Index i = 0; i < count; ++i)
    header += "\"model.layers.0.input_layernorm." + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[16384,16384],)" + R"("data_offsets":[)" +
              std::to_string(i * bytes) + "," + std::to_string((i + 1) * bytes) + "]},";
  header.back() = '}';
  const std::uint64_t length = header.size();
  put(path_ + "/model.safetensors",
      std::string(reinterpret_cast<const char*>(&length), 8) + header);
  const auto size = static_cast<off_t>(8 + header.size()) + count * bytes;
  if (truncate((path_ + "/model.safetensors").c_str(), size) != 0)
    GTEST_SKIP() << "the file system has no files of 4 TiB";
  with("vocab_size", 16384);
  refused({path_ + ": the weights take 4398.05 GB, this machine has ", " GB of memory"});
  expect_broken([&] { load_pretrained(path_, {WeightType::q4_0}); },
                {"the weights take 618.475 GB"});
  ModelConfig huge;
  huge.vocab_size = huge.hidden_size = Index{1} << 20;
  huge.layers = 100;
  expect_refused([&] { Transformer{huge}; }, {"model: its weights take", "GB of memory"});
  huge.layers = Index{1} << 40;
  expect_refused([&] { Transformer{huge}; }, {"1099511627776 layers, expected at most 65536"});
}

TEST_F(HostileFolder, WeightsAloneAreNoModel) {
  expect_broken([&] { load_pretrained(path_ + "/model.safetensors"); },
                {"model.safetensors: holds weights alone", "the folder"});
  expect_broken([&] { pretrained_info(path_ + "/model.safetensors"); }, {"weights alone"});
  expect_broken([&] { load_pretrained(path_ + "/config.json"); },
                {"config.json: is one file", "folder"});
}

TEST(LoadPretrained, TakesPathsOnly) {
  for (const char* name : {"minilm", "smollm2"}) {
    expect_broken([&] { load_pretrained(name); },
                  {name, "no such file or folder, expected the path of a model"});
    expect_broken([&] { pretrained_info(name); }, {name, "expected the path of a model"});
  }
  expect_broken([] { load_pretrained("/nowhere/minilm"); }, {"/nowhere/minilm: cannot be "});
}

TEST(LoadPretrained, HasNamesForItsEnums) {
  EXPECT_EQ(to_string(WeightType::q8_0), "q8_0");
  EXPECT_EQ(from_string<WeightType>("stored"), WeightType::stored);
  expect_refused(
      [] { from_string<WeightType>("f8"); },
      {"weight_type: \"f8\" given, expected stored, f32, bf16, f16, q8_0, q4_0 or q4_1"});
  EXPECT_EQ(from_string<Pooling::Kind>(to_string(Pooling::Kind::cls)), Pooling::Kind::cls);
  expect_refused([] { from_string<Pooling::Kind>("first"); }, {"mean or cls"});
  EXPECT_EQ(from_string<Dense::Activation>("tanh"), Dense::Activation::tanh);
  EXPECT_EQ(to_string(Dense::Activation::identity), "identity");
}

const char* const t5_encoder = R"({"model_type": "t5", "architectures": ["T5EncoderModel"],
    "vocab_size": 258, "d_model": 12, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 3,
    "num_decoder_layers": 7, "is_encoder_decoder": true})";

TEST(T5Encoder, IsReadAndWrittenAlone) {
  Fields fields(parse_json(t5_encoder, "t5"), "t5");
  const Transformer model(family_of("t5", "test").read(fields));
  EXPECT_EQ(model.config().kind, ModelConfig::Kind::encoder);
  const TemporaryFolder folder;
  save_pretrained(folder / "m", model, Tokenizer::bytes(), {.pooling = Pooling{.normalize = true}});
  Pretrained again = load_pretrained(folder / "m");
  EXPECT_TRUE(again.warnings.empty()) << again.warnings.front();
  EXPECT_EQ(again.family, "t5");
  expect_same_parameters(again.model, model);
  const Json written = parse_json(get(folder / "m/config.json"), "config.json");
  EXPECT_EQ(written["architectures"][0], "T5EncoderModel");
  const std::string texts[] = {"a text", "another"};
  const Tensor vectors = embed_texts(again, texts);
  EXPECT_EQ(vectors.shape(), (Shape{2, 12}));
  const std::string nothing[] = {"a", ""};
  expect_refused([&] { embed_texts(again, nothing); }, {"embed: the text \"\" has no tokens"});
}

}  // namespace
}  // namespace rapt::test
