#include <algorithm>
#include <utility>

#include "base/input.h"
#include "formats/byte_letters.h"
#include "formats/fields.h"
#include "formats/tokenizer_body.h"

namespace rapt {
namespace {

constexpr Index max_merges = 10'000'000;
constexpr std::size_t longest_added = 128;  // bytes; bounds the work per byte of text

std::string type_of(const Json& part) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return "";
  return part["type"];
}

/// Reads one file, part by part, into a body.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), top_(read_json(path, {.bytes = 300'000'000}), path) {}

  std::shared_ptr<Tokenizer::Body> read() {
    check_input(top_.value("normalizer").is_null(), path_, ": normalizer of type ",
                printable(type_of(top_.value("normalizer"))), " is not understood");
    read_cut(top_.value("pre_tokenizer"));
    check_decoder(top_.value("decoder"));
    read_model();
    read_added();
    read_merges();
    name_special(body_->end, {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>"});
    name_special(body_->padding, {"<|padding|>", "<|pad|>", "<pad>", "[PAD]"});
    body_->index_tokens(path_);
    return body_;
  }

 private:
  void read_cut(const Json& part) {
    if (type_of(part) != "Sequence") {
      read_byte_level(part);
      return;
    }
    const Json& parts = part.value("pretokenizers", Json::array());
    check_input(parts.is_array() && parts.size() == 2 && type_of(parts[0]) == "Split", path_,
                ": pre_tokenizer is a Sequence of something else than Split and ByteLevel");
    read_byte_level(parts[1]);
    check_input(body_->cutter.cut() == Cut::none, path_,
                ": pre_tokenizer cuts twice, by Split and by ByteLevel");
    Fields split(parts[0], path_, "pre_tokenizer");
    Fields pattern = split.object("pattern");
    const std::string text = pattern.text("Regex");
    const std::optional<Cut> cut = cut_of_pattern(text);
    check_input(cut.has_value(), path_, ": pre_tokenizer has the pattern ", printable(text),
                ", which is not one of those understood");
    check_input(split.text("behavior") == "Isolated" && !split.boolean("invert", false), path_,
                ": pre_tokenizer.behavior is not understood, expected Isolated");
    body_->cutter = WordCutter(*cut);
  }

  void read_byte_level(const Json& part) {
    check_input(type_of(part) == "ByteLevel", path_, ": pre_tokenizer of type ",
                printable(type_of(part)), " is not understood, expected ByteLevel");
    Fields fields(part, path_, "pre_tokenizer");
    check_input(!fields.boolean("add_prefix_space", true), path_,
                ": pre_tokenizer.add_prefix_space is true, which is not supported");
    body_->cutter = WordCutter(fields.boolean("use_regex", true) ? Cut::gpt2 : Cut::none);
  }

  void check_decoder(const Json& part) {
    check_input(part.is_null() || type_of(part) == "ByteLevel", path_, ": decoder of type ",
                printable(type_of(part)), " is not understood, expected ByteLevel");
  }

  void read_model() {
    Fields model = top_.object("model");
    merges_ = &model.value("merges");
    check_input(model.text("type", "BPE") == "BPE", path_, ": model of type ",
                printable(model.text("type", "")), " is not understood, expected BPE");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (!model.text(affix, "").empty()) model.fail(affix, "expected none for bytes");
    if (model.boolean("byte_fallback", false)) model.fail("byte_fallback", "expected false");
    if (model.real("dropout", {}, 0) != 0) model.fail("dropout", "expected none");
    body_->whole_words = model.boolean("ignore_merges", false);
    const Json& vocabulary = model.value("vocab");
    check_input(vocabulary.is_object() && std::cmp_less_equal(vocabulary.size(), max_entries),
                path_, ": model.vocab is not an object of at most ", max_entries, " entries");
    const Index entries = static_cast<Index>(vocabulary.size());
    check_input(top_.value("added_tokens").is_null() || top_.value("added_tokens").is_array(),
                path_, ": added_tokens is not a list");
    const auto added = static_cast<Index>(top_.value("added_tokens").size());
    spellings_.resize(static_cast<std::size_t>(entries + added));
    for (const auto& [spelling, id] : vocabulary.items()) place(spelling, id_of(id, spelling));
  }

  /// An id that is one of those the file has room for: no array is as long as a number says.
  std::size_t id_of(const Json& value, std::string_view spelling) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= spellings_.size())
      fail_input(path_, ": token ", printable(spelling), " has the id ",
                 value.is_primitive() ? value.dump() : "of a list or an object", ", expected 0 to ",
                 static_cast<Index>(spellings_.size()) - 1);
    return value.get<std::size_t>();
  }

  void place(const std::string& spelling, std::size_t id) {
    check_input(!spelling.empty(), path_, ": a token without letters has the id ", id);
    check_input(spellings_[id].empty(), path_, ": id ", id, " belongs to ",
                printable(spellings_[id]), " and to ", printable(spelling));
    spellings_[id] = spelling;
    ids_.emplace(spelling, id);
  }

  void read_added() {
    std::vector<TokenKind> kinds(spellings_.size(), TokenKind::piece);
    for (const Json& entry : top_.value("added_tokens")) {
      Fields fields(entry, path_, "added_tokens");
      const std::string content = fields.text("content");
      const std::size_t id = id_of(fields.value("id"), content);
      const bool special = fields.boolean("special", false);
      check_input(content.size() <= longest_added, path_, ": added token ", printable(content),
                  " is longer than ", longest_added, " bytes");
      const bool plain = !fields.boolean("single_word", false) &&
                         !fields.boolean("lstrip", false) && !fields.boolean("rstrip", false);
      check_input(special || plain, path_, ": added token ", printable(content),
                  " is to be stripped or a single word, which is not supported");
      check_input(kinds[id] == TokenKind::piece, path_, ": id ", id, " is added twice");
      const auto known = ids_.find(content);
      check_input(known == ids_.end() || known->second == id, path_, ": token ", printable(content),
                  " has the ids ", known == ids_.end() ? id : known->second, " and ", id);
      if (known == ids_.end()) place(content, id);
      kinds[id] = special ? TokenKind::special : TokenKind::added;
    }
    fill_tokens(kinds);
  }

  /// Ids are all those from 0 to the last.
  void fill_tokens(const std::vector<TokenKind>& kinds) {
    const std::size_t count = ids_.size();
    for (std::size_t id = 0; id < count; ++id) {
      check_input(!spellings_[id].empty(), path_, ": no token has the id ", id, " of ", count);
      if (kinds[id] != TokenKind::piece) {
        body_->tokens.push_back({spellings_[id], kinds[id]});
        continue;
      }
      std::optional<std::string> bytes = bytes_of_letters(spellings_[id]);
      check_input(bytes.has_value(), path_, ": model.vocab ", printable(spellings_[id]),
                  " has letters that stand for no byte");
      body_->tokens.push_back({std::move(*bytes), TokenKind::piece});
    }
  }

  void read_merges() {
    check_input(merges_->is_array() && std::cmp_less_equal(merges_->size(), max_merges), path_,
                ": model.merges is not a list of at most ", max_merges, " pairs");
    for (std::size_t rank = 0; rank < merges_->size(); ++rank) {
      const auto [left, right] = pair_of((*merges_)[rank], rank);
      body_->merges.push_back(
          {part_id(left, rank), part_id(right, rank), part_id(left + right, rank)});
    }
  }

  /// "a b" or ["a", "b"].
  std::pair<std::string, std::string> pair_of(const Json& merge, std::size_t rank) const {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0], merge[1]};
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    check_input(space != std::string::npos && space == text.rfind(' '), path_, ": model.merges[",
                rank, "] is ",
                merge.is_string() ? printable(text).text() : "neither a text nor a pair",
                ", expected two tokens");
    return {text.substr(0, space), text.substr(space + 1)};
  }

  std::int32_t part_id(const std::string& spelling, std::size_t rank) const {
    const auto found = ids_.find(spelling);
    check_input(found != ids_.end(), path_, ": model.merges[", rank, "] needs the token ",
                printable(spelling), ", which is not in model.vocab");
    check_input(body_->tokens[found->second].kind == TokenKind::piece, path_, ": model.merges[",
                rank, "] merges ", printable(spelling), ", which is no piece of text");
    return static_cast<std::int32_t>(found->second);
  }

  void name_special(std::optional<std::int32_t>& which, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto found = ids_.find(name);
      if (which || found == ids_.end()) continue;
      if (body_->tokens[found->second].kind == TokenKind::special)
        which = static_cast<std::int32_t>(found->second);
    }
  }

  std::string path_;
  Fields top_;
  const Json* merges_ = nullptr;  // in top_
  std::shared_ptr<Tokenizer::Body> body_ = std::make_shared<Tokenizer::Body>();
  std::vector<std::string> spellings_;  // by id
  std::unordered_map<std::string, std::size_t> ids_;
};

}  // namespace

Tokenizer Tokenizer::read(const std::string& path) { return Body::made(Reader(path).read()); }

}  // namespace rapt
