#include "base/io/files.h"
#include "formats/config/json.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {
namespace {

using Body = Tokenizer::Body;

/// A file has one token without letters at most. Others get a name that nothing else has, and are
/// special, so that they still decode to nothing.
bool is_another_empty(const Body& body, std::size_t id) {
  return body.kind != ModelKind::unigram && body.tokens[id].in_model &&
         body.tokens[id].bytes.empty() && body.ids.at("") != static_cast<std::int32_t>(id);
}

std::string empty_name(const Body& body, std::size_t id) {
  std::string name = "[EMPTY_" + std::to_string(id) + "]";
  while (body.ids.contains(name)) name += "_";
  return name;
}

std::string added_tokens(const Body& body) {
  Json list = Json::array();
  for (std::size_t id = 0; id < body.tokens.size(); ++id)
    if (is_another_empty(body, id))
      list.push_back({{"id", id},
                      {"content", empty_name(body, id)},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  for (const AddedToken& token : body.added)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list.dump();
}

std::string quoted(const Body& body, std::int32_t id) { return Json(body.spelling(id)).dump(); }

/// In the order of ids, which an object of our JSON would lose.
std::string vocabulary(const Body& body) {
  const bool list = body.kind == ModelKind::unigram;
  std::string text;
  for (std::size_t id = 0; id < body.tokens.size(); ++id) {
    if (!body.tokens[id].in_model) continue;
    text += text.empty() ? "" : ",";
    const std::string name = is_another_empty(body, id)
                                 ? Json(empty_name(body, id)).dump()
                                 : quoted(body, static_cast<std::int32_t>(id));
    text += list ? "[" + name + "," + Json(body.scores[id]).dump() + "]"
                 : name + ":" + std::to_string(id);
  }
  return list ? "[" + text + "]" : "{" + text + "}";
}

std::string merge_list(const Body& body) {
  std::string text = "[";
  for (const Merge& merge : body.merges)
    text += (text.size() == 1 ? "[" : ",[") + quoted(body, merge.left) + "," +
            quoted(body, merge.right) + "]";
  return text + "]";
}

std::string text_or_null(const std::string& text) {
  return text.empty() ? "null" : Json(text).dump();
}
std::string word(bool value) { return value ? "true" : "false"; }

std::string model(const Body& body) {
  const Bpe::Options& options = body.options;
  const std::string unknown = options.unknown ? quoted(body, *options.unknown) : "null";
  switch (body.kind) {
    case ModelKind::word_piece:
      return R"({"type":"WordPiece","unk_token":)" + unknown + R"(,"continuing_subword_prefix":)" +
             Json(options.prefix).dump() + R"(,"max_input_chars_per_word":)" +
             std::to_string(body.longest_word) + R"(,"vocab":)" + vocabulary(body) + "}";
    case ModelKind::word_level:
      return R"({"type":"WordLevel","vocab":)" + vocabulary(body) + R"(,"unk_token":)" + unknown +
             "}";
    case ModelKind::unigram:
      return R"({"type":"Unigram","unk_id":)" +
             (options.unknown ? std::to_string(*options.unknown) : "null") + R"(,"vocab":)" +
             vocabulary(body) + R"(,"byte_fallback":)" + word(options.byte_fallback) + "}";
    case ModelKind::bpe:
      break;
  }
  return R"({"type":"BPE","dropout":null,"unk_token":)" + unknown +
         R"(,"continuing_subword_prefix":)" + text_or_null(options.prefix) +
         R"(,"end_of_word_suffix":)" + text_or_null(options.suffix) + R"(,"fuse_unk":)" +
         word(options.fuse_unknown) + R"(,"byte_fallback":)" + word(options.byte_fallback) +
         R"(,"ignore_merges":)" + word(options.whole_words) + R"(,"vocab":)" + vocabulary(body) +
         R"(,"merges":)" + merge_list(body) + "}";
}

}  // namespace

void Tokenizer::write(const std::string& path) const {
  const Body::Parts& parts = body_->parts;
  const std::string text = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" +
                           added_tokens(*body_) + R"(,"normalizer":)" + parts.normalizer.dump() +
                           R"(,"pre_tokenizer":)" + parts.pre_tokenizer.dump() +
                           R"(,"post_processor":)" + parts.post_processor.dump() +
                           R"(,"decoder":)" + parts.decoder.dump() + R"(,"model":)" +
                           model(*body_) + "}\n";
  replace_file(path, text);
}

}  // namespace rapt
