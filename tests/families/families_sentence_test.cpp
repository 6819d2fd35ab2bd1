#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/memory_use.h"
#include "families/sentence/sentence_config.h"
#include "formats/tensors/safetensors_file.h"
#include "nn/matmul/gemm.h"
#include "support/temporary_folder.h"
#include "support/truth/matmul_bound.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

constexpr Index width = 12;
const std::string texts[] = {"a text", "another one", "x"};

Transformer encoder() {
  ModelConfig config;
  config.kind = ModelConfig::Kind::encoder;
  config.patterns = {full()};
  config.vocab_size = 258;
  config.hidden_size = width;
  config.heads = 3;
  config.layers = 2;
  config.head = false;
  config.positions = ModelConfig::Positions::learned;
  config.max_positions = 32;
  config.norm_position = ModelConfig::NormPosition::post;
  config.embedding_norm = true;
  config.type_vocab_size = 2;
  return Transformer(config);
}

/// Numbers between -1 and 1 that no two places share.
std::vector<float> numbers(Index count, double seed) {
  std::vector<float> made;
  for (Index i = 0; i < count; ++i)
    made.push_back(static_cast<float>(std::sin(seed + 1.7 * static_cast<double>(i))));
  return made;
}

Pooling two_layers() {
  Pooling pooling;
  pooling.dense.push_back(
      {width, 8, numbers(8 * width, 1), numbers(8, 2), Dense::Activation::tanh});
  pooling.dense.push_back({8, 5, numbers(5 * 8, 3), {}, Dense::Activation::identity});
  pooling.normalize = true;
  return pooling;
}

/// Rows through a layer, in double, with the error that a product of f32 may have.
struct Bounded {
  std::vector<double> values, errors;
};
Bounded through(const Dense& layer, const Bounded& row) {
  Bounded made;
  for (Index o = 0; o < layer.out_features; ++o) {
    double sum = layer.bias.empty() ? 0 : static_cast<double>(layer.bias[std::size_t(o)]);
    double sizes = std::abs(sum), error = 0;
    for (Index i = 0; i < layer.in_features; ++i) {
      const double weight =
          static_cast<double>(layer.weight[std::size_t(o * layer.in_features + i)]);
      sum += weight * row.values[std::size_t(i)];
      sizes += std::abs(weight * row.values[std::size_t(i)]);
      error += std::abs(weight) * row.errors[std::size_t(i)];
    }
    error += multiply_error(layer.in_features) * sizes;
    const bool tanh = layer.activation == Dense::Activation::tanh;  // whose slope is at most 1
    made.values.push_back(tanh ? std::tanh(sum) : sum);
    made.errors.push_back(error + 0x1p-22 * std::abs(made.values.back()));
  }
  return made;
}

TEST(SentenceModels, RowsGoThroughDenseLayersBeforeTheyAreNormed) {
  Pretrained loaded{"bert", encoder(), Tokenizer::bytes()};
  const Tensor pooled = embed_texts(loaded, texts);
  loaded.pooling = two_layers();
  const Tensor made = embed_texts(loaded, texts);
  ASSERT_EQ(made.shape(), (Shape{3, 5}));
  for (Index t = 0; t < 3; ++t) {
    Bounded row;
    row.values.assign(pooled.data() + t * width, pooled.data() + (t + 1) * width);
    row.errors.assign(width, 0);
    for (const Dense& layer : loaded.pooling.dense) row = through(layer, row);
    double squares = 0, error = 0;
    for (std::size_t c = 0; c < 5; ++c) {
      squares += row.values[c] * row.values[c];
      error += row.errors[c];
    }
    const double length = std::sqrt(squares);
    for (std::size_t c = 0; c < 5; ++c)
      EXPECT_NEAR(made.data()[t * 5 + Index(c)], row.values[c] / length, 2 * error / length + 1e-7);
  }
}

TEST(SentenceModels, ComeBackAsTheyWereWritten) {
  const TemporaryFolder folder;
  const Pooling pooling = two_layers();
  save_pretrained(folder / "m", encoder(), Tokenizer::bytes(), {.pooling = pooling});
  Pretrained again = load_pretrained(folder / "m");
  EXPECT_TRUE(again.warnings.empty()) << again.warnings.front();
  ASSERT_EQ(again.pooling.dense.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.pooling.dense[i].weight, pooling.dense[i].weight);
    EXPECT_EQ(again.pooling.dense[i].bias, pooling.dense[i].bias);
    EXPECT_EQ(again.pooling.dense[i].activation, pooling.dense[i].activation);
  }
  EXPECT_TRUE(again.pooling.normalize);
  EXPECT_EQ(embed_texts(again, texts).shape(), (Shape{3, 5}));
  const Json modules = parse_json(get(folder / "m/modules.json"), "modules.json");
  EXPECT_EQ(modules[3]["path"], "3_Dense");
  EXPECT_EQ(modules[4]["type"], "sentence_transformers.models.Normalize");
  save_pretrained(folder / "narrow", encoder(), {}, {.type = Type::bf16, .pooling = pooling});
  EXPECT_EQ(SafetensorsFile(folder / "narrow/2_Dense/model.safetensors").tensors()[0].type, "BF16");
}

/// A folder with one dense layer whose files a test spoils.
class HostileDense : public testing::Test {
 protected:
  HostileDense() {
    fs::create_directory(folder_ / "2_Dense");
    modules({"Dense", "Normalize"});
    config();
    weights({{"linear.weight", {2, width}}, {"linear.bias", {2}}});
  }
  /// Dense layers are at 2_Dense, 3_Dense and so on.
  void modules(const std::vector<std::string>& kinds) {
    std::vector<std::string> places;
    for (const std::string& kind : kinds)
      places.push_back(kind == "Dense" ? std::to_string(places.size() + 2) + "_Dense" : "");
    modules(kinds, places);
  }
  void modules(const std::vector<std::string>& kinds, const std::vector<std::string>& places) {
    Json made = Json::array();
    for (std::size_t i = 0; i < kinds.size(); ++i)
      made.push_back({{"path", places[i]}, {"type", "sentence_transformers.models." + kinds[i]}});
    put(folder_ / "modules.json", made.dump());
  }
  void config(const std::string& key = "bias", const Json& value = true) {
    Json made{{"in_features", width},
              {"out_features", 2},
              {"bias", true},
              {"activation_function", "torch.nn.modules.activation.Tanh"}};
    made[key] = value;
    put(folder_ / "2_Dense/config.json", made.dump());
  }
  void weights(const std::vector<std::pair<std::string, Shape>>& shapes, float fill = 0) {
    std::vector<Tensor> made;
    for (const auto& [name, shape] : shapes) {
      made.emplace_back(shape);
      for (float& number : made.back().numbers()) number = fill;
    }
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < made.size(); ++i) named.push_back({shapes[i].first, made[i]});
    fs::remove(folder_ / "2_Dense/model.safetensors");
    write_safetensors(folder_ / "2_Dense/model.safetensors", named);
  }
  void refused(const std::vector<std::string>& words) {
    expect_broken([&] { read_pooling(folder_.path(), width); }, words);
  }

  TemporaryFolder folder_;
};

TEST_F(HostileDense, IsReadAsItStands) {
  EXPECT_EQ(read_pooling(folder_.path(), width).dense[0].bias.size(), 2u);
  config("activation_function", "torch.nn.modules.linear.Identity");
  EXPECT_EQ(read_pooling(folder_.path(), width).dense[0].activation, Dense::Activation::identity);
  config("module_input_name", "sentence_embedding");
  EXPECT_EQ(read_pooling(folder_.path(), width).dense.size(), 1u);
}

TEST_F(HostileDense, WhatIsNotComputedIsRefusedByName) {
  for (const char* name :
       {"torch.nn.modules.activation.GELU", "os.system", "Tanh", "my.Tanh", ""}) {
    config("activation_function", name);
    refused({"2_Dense/config.json", "activation_function", name, "Identity"});
  }
  config("module_input_name", "token_embeddings");
  refused({"module_input_name", "token_embeddings"});
  config("use_residual", true);
  refused({"2_Dense/config.json", "use_residual"});
  config();
  modules({"Dense", "Pooling"});
  refused({"modules.json", "models.Pooling", "at this place",
           "Transformer, Pooling, Dense, Normalize"});
  modules({"Normalize", "Dense"});
  refused({"models.Dense", "at this place"});
  modules({"Dense", "LayerNorm"});
  refused({"models.LayerNorm", "nothing else is computed"});
}

TEST_F(HostileDense, ShapesAndNumbersAreChecked) {
  for (const Json& size : {Json(0), Json(-1), Json(1e30), Json("12"), Json(13)}) {
    config("in_features", size);
    refused({"2_Dense/config.json", "in_features", "expected"});
  }
  config("out_features", Index{1} << 31);
  refused({"2_Dense", "linear.weight has shape [2, 12], expected [2147483648, 12]"});
  config();
  fs::copy(folder_ / "2_Dense", folder_ / "3_Dense");
  modules({"Dense", "Dense"});
  refused({"3_Dense/config.json: in_features is 12, expected 2"});
  modules({"Dense"});
  weights({{"linear.weight", {2, width}}});
  refused({"2_Dense: there is no linear.bias"});
  weights({{"linear.weight", {2, width}}, {"linear.bias", {3}}});
  refused({"linear.bias has shape [3], expected [2]"});
  weights({{"linear.weight", {2, width}}, {"linear.bias", {2}}, {"residual.weight", {2, width}}});
  refused({"\"residual.weight\" is a weight that config.json has no place for"});
  weights({{"linear.weight", {2, width}}, {"linear.bias", {2}}},
          std::numeric_limits<float>::infinity());
  refused({"linear.weight has 24 of 24 numbers that are infinite"});
  EXPECT_EQ(read_pooling(folder_.path(), width, {.allow_non_finite = true}).dense.size(), 1u);
  fs::remove(folder_ / "2_Dense/model.safetensors");
  refused({"2_Dense", "model.safetensors"});
  fs::remove(folder_ / "2_Dense/config.json");
  refused({"2_Dense/config.json: is missing"});
}

/// Numbers are f32 in memory, whatever the file has.
TEST_F(HostileDense, MemoryOfItsNumbersIsKnownBeforeTheyAreRead) {
  EXPECT_EQ(dense_bytes(folder_.path()), 4 * (2 * width + 2));
  fs::copy(folder_ / "2_Dense", folder_ / "3_Dense");
  modules({"Dense", "Dense"});
  EXPECT_EQ(dense_bytes(folder_.path()), 2 * 4 * (2 * width + 2));
  fs::remove(folder_ / "modules.json");
  EXPECT_EQ(dense_bytes(folder_.path()), 0);
}

TEST(SentenceModels, DenseLayersCountAsMemory) {
  const TemporaryFolder folder;
  save_pretrained(folder / "m", encoder(), Tokenizer::bytes(), {.pooling = two_layers()});
  const Index rows = Index{1} << 30, bytes = rows * width * 4;  // 51 GB: a hole in the file
  const Index layers = 8;
  Json modules = Json::array();
  for (Index i = 0; i < layers; ++i) {
    const std::string place = std::to_string(i + 2) + "_Dense", path = folder / ("m/" + place);
    fs::create_directories(path);
    const Json config{{"in_features", width}, {"out_features", rows}, {"bias", false}};
    put(path + "/config.json", config.dump());
    const std::string header = R"({"linear.weight":{"dtype":"F32","shape":[)" +
                               std::to_string(rows) + "," + std::to_string(width) +
                               R"(],"data_offsets":[0,)" + std::to_string(bytes) + "]}}";
    const std::uint64_t length = header.size();
    put(path + "/model.safetensors",
        std::string(reinterpret_cast<const char*>(&length), 8) + header);
    fs::resize_file(path + "/model.safetensors", 8 + header.size() + std::size_t(bytes));
    modules.push_back({{"path", place}, {"type", "sentence_transformers.models.Dense"}});
  }
  put(folder / "m/modules.json", modules.dump());
  if (machine_memory() > layers * bytes) GTEST_SKIP() << "this machine has room for all of it";
  expect_broken([&] { load_pretrained(folder / "m"); },
                {"the weights take 412.3", " GB, this machine has"});
}

TEST_F(HostileDense, ModulesAreFewAndEachHasItsFolder) {
  for (const char* again : {"2_Dense", "./2_Dense", "2_Dense/", ".//2_Dense/."}) {
    modules({"Dense", "Dense"}, {"2_Dense", again});
    refused({"modules.json: two modules at ", again, "a folder for each"});
  }
  modules({"Pooling", "Dense"}, {"2_Dense", "2_Dense"});
  put(folder_ / "2_Dense/config.json", R"({"pooling_mode": "mean"})");
  refused({"two modules at \"2_Dense\""});
  modules(std::vector<std::string>(17, "Dense"));
  refused({"modules.json: has 17 modules, expected at most 16"});
}

TEST_F(HostileDense, LinksStayInsideTheModel) {
  const TemporaryFolder outside;
  const auto link = [&](const std::string& name) {
    fs::rename(folder_ / name, outside / "target");
    fs::create_symlink(outside / "target", folder_ / name);
    refused({name, "is a link to", "outside of"});
    fs::remove(folder_ / name);
    fs::rename(outside / "target", folder_ / name);
  };
  for (const char* name : {"2_Dense", "2_Dense/config.json", "2_Dense/model.safetensors"})
    link(name);
  fs::rename(folder_ / "2_Dense", folder_ / "elsewhere");
  fs::create_symlink("elsewhere", folder_ / "2_Dense");
  EXPECT_EQ(read_pooling(folder_.path(), width).dense.size(), 1u);
}

/// As snapshot_download lays files out: every one is a link to a blob.
TEST_F(HostileDense, IsReadFromACache) {
  const TemporaryFolder cache;
  const std::string snapshot = cache / "snapshots/1234";
  fs::create_directories(snapshot + "/2_Dense");
  fs::create_directory(cache / "blobs");
  const auto add = [&](const std::string& name, const std::string& blob, const std::string& up) {
    fs::copy_file(folder_ / name, cache / ("blobs/" + blob));
    fs::create_symlink(up + "../../blobs/" + blob, snapshot + "/" + name);
  };
  add("modules.json", "a", "");
  add("2_Dense/config.json", "b", "../");
  add("2_Dense/model.safetensors", "c", "../");
  EXPECT_EQ(read_pooling(snapshot, width).dense[0].bias.size(), 2u);
  // Files next to the blobs belong to other models, or to none.
  fs::rename(cache / "blobs/c", cache / "c");
  fs::remove(snapshot + "/2_Dense/model.safetensors");
  fs::create_symlink("../../../c", snapshot + "/2_Dense/model.safetensors");
  expect_broken([&] { read_pooling(snapshot, width); }, {"is a link to", "outside of"});
}

}  // namespace
}  // namespace rapt::test
