#include "base/files.h"
#include "formats/byte_letters.h"
#include "formats/json.h"
#include "formats/tokenizer_body.h"

namespace rapt {
namespace {

/// Special tokens and added words are text already.
std::string spelled(const Tokenizer::Body::Token& token) {
  return token.kind == TokenKind::piece ? letters_of(token.bytes) : token.bytes;
}

std::string added_tokens(const Tokenizer::Body& body) {
  Json added = Json::array();
  for (std::size_t id = 0; id < body.tokens.size(); ++id) {
    const auto& token = body.tokens[id];
    if (token.kind == TokenKind::piece) continue;
    added.push_back({{"id", id},
                     {"content", token.bytes},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.kind == TokenKind::special}});
  }
  return added.dump();
}

/// ByteLevel cuts GPT-2's way or not at all; any other way goes before it.
std::string pre_tokenizer(Cut cut) {
  Json letters{{"type", "ByteLevel"},
               {"add_prefix_space", false},
               {"trim_offsets", true},
               {"use_regex", cut == Cut::gpt2}};
  if (cut == Cut::gpt2 || cut == Cut::none) return letters.dump();
  const Json split{{"type", "Split"},
                   {"pattern", {{"Regex", pattern_of(cut)}}},
                   {"behavior", "Isolated"},
                   {"invert", false}};
  return Json{{"type", "Sequence"}, {"pretokenizers", {split, letters}}}.dump();
}

/// In the order of ids, which an object of our JSON would lose.
std::string vocabulary(const Tokenizer::Body& body) {
  std::string text = "{";
  for (std::size_t id = 0; id < body.tokens.size(); ++id)
    text += (id == 0 ? "" : ",") + Json(spelled(body.tokens[id])).dump() + ":" + std::to_string(id);
  return text + "}";
}

std::string merge_list(const Tokenizer::Body& body) {
  const auto word = [&](std::int32_t id) {
    return Json(spelled(body.tokens[static_cast<std::size_t>(id)])).dump();
  };
  std::string text = "[";
  for (const Merge& merge : body.merges)
    text += (text.size() == 1 ? "[" : ",[") + word(merge.left) + "," + word(merge.right) + "]";
  return text + "]";
}

}  // namespace

void Tokenizer::write(const std::string& path) const {
  const std::string whole_words = body_->whole_words ? "true" : "false";
  const std::string text =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":)" +
      added_tokens(*body_) + R"(,"normalizer":null,"pre_tokenizer":)" +
      pre_tokenizer(body_->cutter.cut()) +
      R"(,"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":false,)"
      R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,)"
      R"("unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":)" +
      whole_words + R"(,"vocab":)" + vocabulary(*body_) + R"(,"merges":)" + merge_list(*body_) +
      "}}\n";
  replace_file(path, text);
}

}  // namespace rapt
