#include <set>

#include "families/sentence/sentence_config.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

/// modules.json, a zero byte, the config of the pooling, a zero byte, sentence_bert_config.json.
std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  const std::string modules =
      R"([{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},)"
      R"({"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"},)"
      R"({"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}])";
  return {modules + zero +
              R"({"word_embedding_dimension":384,"pooling_mode_cls_token":false,)"
              R"("pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":false})" +
              zero + R"({"max_seq_length":256,"do_lower_case":false})",
          modules + zero + R"({"pooling_mode":"cls"})",
          R"([{"path":"a","type":"x.Dense"},{"path":"b","type":"x.Dense"}])" + zero +
              R"({"in_features":8,"out_features":4,"bias":false,)"
              R"("activation_function":"torch.nn.modules.linear.Identity"})"};
}

std::vector<std::string> words() {
  return json_words({"pooling_mode",
                     "mean",
                     "cls",
                     "path",
                     "type",
                     "x.Pooling",
                     "x.Normalize",
                     "x.Transformer",
                     "../..",
                     "/",
                     "a/b",
                     "max_seq_length",
                     "pooling_mode_cls_token",
                     "pooling_mode_mean_tokens",
                     "x.Dense",
                     "in_features",
                     "out_features",
                     "bias",
                     "activation_function",
                     "torch.nn.Tanh",
                     "module_input_name"});
}

std::function<void()> open(std::string_view input) {
  const std::size_t first = std::min(input.find('\0'), input.size());
  const std::size_t second = std::min(input.find('\0', first + 1), input.size());
  const auto files = [&](const std::string& path) -> std::optional<Json> {
    const auto part = [&](std::size_t begin, std::size_t end) {
      return parse_json(input.substr(begin, end - begin), path);
    };
    if (path == "fuzz/modules.json") return part(0, first);
    if (path == "fuzz/sentence_bert_config.json") {
      if (second == input.size()) return std::nullopt;
      return part(second + 1, input.size());
    }
    expect(path.starts_with("fuzz/") && path.ends_with("/config.json") &&
               path.find("/../") == std::string::npos && path.find('\0') == std::string::npos,
           "a file outside of the model's folder");
    if (first == input.size()) return std::nullopt;
    return part(first + 1, second);
  };
  const SentenceConfig outline = sentence_config("fuzz", files);
  expect(outline.pooling.max_seq_length.value_or(1) >= 1, "fewer tokens than one");
  expect(outline.layers.size() <= 16, "layers without end");
  std::set<std::string> folders;
  for (const SentenceConfig::Layer& layer : outline.layers) {
    expect(folders.insert(layer.folder).second, "a folder that comes twice");
    expect(layer.dense.in_features > 0 && layer.dense.out_features > 0 &&
               layer.folder.starts_with("fuzz/"),
           "a layer of no numbers, or outside of the model's folder");
  }
  return nothing_more();
}

}  // namespace

const Target sentence_target = {"sentence", seeds, words, open};

}  // namespace rapt::fuzz
