#include "base/io/files.h"
#include "formats/config/json.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {
using namespace detail;
namespace {

using Impl = Tokenizer::Impl;

/// A file has at most one empty token. Others get a unique name and are special, so that they still
/// decode to nothing.
bool is_another_empty(const Impl& impl, std::size_t id) {
  return impl.kind != ModelKind::unigram && impl.tokens[id].in_model &&
         impl.tokens[id].bytes.empty() && impl.ids.at("") != static_cast<std::int32_t>(id);
}

std::string empty_name(const Impl& impl, std::size_t id) {
  std::string name = "[EMPTY_" + std::to_string(id) + "]";
  while (impl.ids.contains(name)) name += "_";
  return name;
}

std::string added_tokens(const Impl& impl) {
  Json list = Json::array();
  for (std::size_t id = 0; id < impl.tokens.size(); ++id)
    if (is_another_empty(impl, id))
      list.push_back({{"id", id},
                      {"content", empty_name(impl, id)},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  for (const AddedToken& token : impl.added)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list.dump();
}

std::string quoted(const Impl& impl, std::int32_t id) { return Json(impl.spelling(id)).dump(); }

/// In the order of ids, which an object of our JSON would lose.
std::string vocabulary(const Impl& impl) {
  const bool list = impl.kind == ModelKind::unigram;
  std::string text;
  for (std::size_t id = 0; id < impl.tokens.size(); ++id) {
    if (!impl.tokens[id].in_model) continue;
    text += text.empty() ? "" : ",";
    const std::string name = is_another_empty(impl, id)
                                 ? Json(empty_name(impl, id)).dump()
                                 : quoted(impl, static_cast<std::int32_t>(id));
    text += list ? "[" + name + "," + Json(impl.scores[id]).dump() + "]"
                 : name + ":" + std::to_string(id);
  }
  return list ? "[" + text + "]" : "{" + text + "}";
}

std::string merge_list(const Impl& impl) {
  std::string text = "[";
  for (const Merge& merge : impl.merges)
    text += (text.size() == 1 ? "[" : ",[") + quoted(impl, merge.left) + "," +
            quoted(impl, merge.right) + "]";
  return text + "]";
}

std::string text_or_null(const std::string& text) {
  return text.empty() ? "null" : Json(text).dump();
}
std::string word(bool value) { return value ? "true" : "false"; }

std::string model(const Impl& impl) {
  const Bpe::Options& options = impl.options;
  const std::string unknown = options.unknown ? quoted(impl, *options.unknown) : "null";
  switch (impl.kind) {
    case ModelKind::word_piece:
      return R"({"type":"WordPiece","unk_token":)" + unknown + R"(,"continuing_subword_prefix":)" +
             Json(options.prefix).dump() + R"(,"max_input_chars_per_word":)" +
             std::to_string(impl.longest_word) + R"(,"vocab":)" + vocabulary(impl) + "}";
    case ModelKind::word_level:
      return R"({"type":"WordLevel","vocab":)" + vocabulary(impl) + R"(,"unk_token":)" + unknown +
             "}";
    case ModelKind::unigram:
      return R"({"type":"Unigram","unk_id":)" +
             (options.unknown ? std::to_string(*options.unknown) : "null") + R"(,"vocab":)" +
             vocabulary(impl) + R"(,"byte_fallback":)" + word(options.byte_fallback) + "}";
    case ModelKind::bpe:
      break;
  }
  return R"({"type":"BPE","dropout":null,"unk_token":)" + unknown +
         R"(,"continuing_subword_prefix":)" + text_or_null(options.prefix) +
         R"(,"end_of_word_suffix":)" + text_or_null(options.suffix) + R"(,"fuse_unk":)" +
         word(options.fuse_unk) + R"(,"byte_fallback":)" + word(options.byte_fallback) +
         R"(,"ignore_merges":)" + word(options.ignore_merges) + R"(,"vocab":)" + vocabulary(impl) +
         R"(,"merges":)" + merge_list(impl) + "}";
}

}  // namespace

void Tokenizer::save(const std::string& path) const {
  const Impl::Parts& parts = impl_->parts;
  const std::string text = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" +
                           added_tokens(*impl_) + R"(,"normalizer":)" + parts.normalizer.dump() +
                           R"(,"pre_tokenizer":)" + parts.pre_tokenizer.dump() +
                           R"(,"post_processor":)" + parts.post_processor.dump() +
                           R"(,"decoder":)" + parts.decoder.dump() + R"(,"model":)" +
                           model(*impl_) + "}\n";
  replace_file(path, text);
}

}  // namespace rapt
