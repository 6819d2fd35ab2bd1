#include <algorithm>
#include <cmath>
#include <utility>

#include "base/io/check_input.h"
#include "base/sizes.h"
#include "formats/config/fields.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/token_roles.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {
using namespace detail;
namespace {

constexpr Index max_merges = 10'000'000;

/// Reads one file, part by part.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), top_(read_json(path, {.bytes = 300'000'000}), path) {}

  std::shared_ptr<Tokenizer::Impl> read() {
    impl_->parts = {top_.value("normalizer"), top_.value("pre_tokenizer"),
                    top_.value("post_processor"), top_.value("decoder")};
    check_input(top_.value("added_tokens").is_null() || top_.value("added_tokens").is_array(),
                path_, ": added_tokens is not a list");
    read_model();
    read_added();
    make_tokens();
    impl_->read_parts(path_);
    if (impl_->byte_tokens) make_bytes();
    if (impl_->kind == ModelKind::bpe) read_merges();
    assign_special_tokens(*impl_);
    impl_->build(path_);
    return impl_;
  }

 private:
  void read_model() {
    Fields model = top_.object("model");
    merges_ = &model.value("merges");
    vocabulary_ = &model.value("vocab");
    std::string type = model.text("type", "");
    if (type.empty())  // older files do not say
      type = vocabulary_->is_array()                 ? "Unigram"
             : model.has("max_input_chars_per_word") ? "WordPiece"
                                                     : "BPE";
    if (type == "BPE")
      read_bpe(model);
    else if (type == "WordPiece")
      read_word_piece(model);
    else if (type == "WordLevel")
      impl_->kind = ModelKind::word_level;
    else if (type == "Unigram")
      impl_->kind = ModelKind::unigram;
    else
      fail_input(path_, ": model of type ", printable(type), " is not supported");
    const auto added = static_cast<Index>(top_.value("added_tokens").size());
    if (impl_->kind == ModelKind::unigram) {
      read_scores(model, added);
      return;
    }
    check_input(
        vocabulary_->is_object() && std::cmp_less_equal(vocabulary_->size(), max_vocab_size), path_,
        ": model.vocab is not an object of at most ", max_vocab_size, " tokens");
    spellings_.resize(vocabulary_->size() + to_size(added));
    for (const auto& [spelling, id] : vocabulary_->items()) place(spelling, id_of(id, spelling));
    const std::string unknown = model.text("unk_token", "");
    if (unknown.empty() && !(model.has("unk_token") && ids_.contains(unknown))) return;
    const auto found = ids_.find(unknown);
    check_input(found != ids_.end(), path_, ": model.unk_token is ", printable(unknown),
                ", which is not in model.vocab");
    impl_->options.unknown = static_cast<std::int32_t>(found->second);
  }

  void read_bpe(Fields& model) {
    Bpe::Options& options = impl_->options;
    options.prefix = model.text("continuing_subword_prefix", "");
    options.suffix = model.text("end_of_word_suffix", "");
    options.byte_fallback = model.boolean("byte_fallback", false);
    options.fuse_unk = model.boolean("fuse_unk", false);
    options.ignore_merges = model.boolean("ignore_merges", false);
    if (model.real("dropout", {}, 0) != 0) model.fail("dropout", "expected none");
  }

  void read_word_piece(Fields& model) {
    impl_->kind = ModelKind::word_piece;
    impl_->options.prefix = model.text("continuing_subword_prefix", "##");
    impl_->longest_word = to_size(model.integer("max_input_chars_per_word", {0, 1 << 30}, 100));
  }

  /// [["a", -1.5], ...]: ids are places.
  void read_scores(Fields& model, Index added) {
    check_input(vocabulary_->is_array() && std::cmp_less_equal(vocabulary_->size(), max_vocab_size),
                path_, ": model.vocab is not a list of at most ", max_vocab_size, " tokens");
    const std::size_t count = vocabulary_->size();
    spellings_.resize(count + to_size(added));
    for (std::size_t id = 0; id < count; ++id) {
      const Json& entry = (*vocabulary_)[id];
      const bool sound = entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                         entry[1].is_number() && std::isfinite(entry[1].get<double>());
      check_input(sound, path_, ": model.vocab[", id, "] is not a token and its score");
      place(entry[0], id);
      impl_->scores.push_back(entry[1]);
    }
    impl_->options.byte_fallback = model.boolean("byte_fallback", false);
    if (model.has("unk_id"))
      impl_->options.unknown = static_cast<std::int32_t>(
          model.integer("unk_id", {0, std::max<Index>(static_cast<Index>(count) - 1, 0)}));
    check_input(count > 0 || !impl_->options.unknown, path_, ": model.vocab is empty");
  }

  /// An id below the number of tokens in the file, so that no number in a file sizes an array.
  std::size_t id_of(const Json& value, std::string_view spelling) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= spellings_.size())
      fail_input(path_, ": token ", printable(spelling), " has the id ",
                 value.is_primitive() ? value.dump() : "of a list or an object", ", expected 0 to ",
                 static_cast<Index>(spellings_.size()) - 1);
    return value.get<std::size_t>();
  }

  void place(const std::string& spelling, std::size_t id) {
    check_input(!spellings_[id], path_, ": id ", id, " belongs to ",
                printable(spellings_[id].value_or("")), " and to ", printable(spelling));
    spellings_[id] = spelling;
    const auto [entry, fresh] = ids_.emplace(spelling, id);
    check_input(fresh, path_, ": token ", printable(spelling), " has the ids ", entry->second,
                " and ", id);
  }

  void read_added() {
    kinds_.assign(spellings_.size(), TokenKind::piece);
    for (const Json& entry : top_.value("added_tokens")) {
      Fields fields(entry, path_, "added_tokens");
      AddedToken token;
      token.content = fields.text("content");
      const std::size_t id = id_of(fields.value("id"), token.content);
      token.id = static_cast<std::int32_t>(id);
      token.special = fields.boolean("special", false);
      token.single_word = fields.boolean("single_word", false);
      token.lstrip = fields.boolean("lstrip", false);
      token.rstrip = fields.boolean("rstrip", false);
      token.normalized = fields.boolean("normalized", !token.special);
      check_input(token.content.size() <= longest_added, path_, ": added token ",
                  printable(token.content), " is longer than ", longest_added, " bytes");
      check_input(kinds_[id] == TokenKind::piece, path_, ": id ", id, " is added twice");
      const auto known = ids_.find(token.content);
      check_input(known == ids_.end() || known->second == id, path_, ": token ",
                  printable(token.content), " has the ids ",
                  known == ids_.end() ? id : known->second, " and ", id);
      if (known == ids_.end()) {
        place(token.content, id);
        outside_.push_back(id);
      }
      kinds_[id] = token.special ? TokenKind::special : TokenKind::added;
      impl_->added.push_back(std::move(token));
    }
  }

  /// Ids are all those from 0 to the last.
  void make_tokens() {
    const std::size_t count = ids_.size();
    for (std::size_t id = 0; id < count; ++id) {
      check_input(spellings_[id].has_value(), path_, ": no token has the id ", id, " of ", count);
      impl_->tokens.push_back({std::move(*spellings_[id]), kinds_[id]});
    }
    for (const std::size_t id : outside_) impl_->tokens[id].in_model = false;
  }

  void make_bytes() {
    for (Tokenizer::Impl::Token& token : impl_->tokens) {
      std::optional<std::string> bytes = bytes_of_letters(token.bytes);
      token.foreign = !bytes;
      if (bytes) token.bytes = std::move(*bytes);
    }
  }

  void read_merges() {
    check_input(merges_->is_array() && std::cmp_less_equal(merges_->size(), max_merges), path_,
                ": model.merges is not a list of at most ", max_merges, " pairs");
    const std::size_t prefix = impl_->options.prefix.size();
    for (std::size_t rank = 0; rank < merges_->size(); ++rank) {
      const auto [left, right] = pair_of((*merges_)[rank], rank);
      check_input(right.size() >= prefix, path_, ": model.merges[", rank, "] has a right part ",
                  printable(right), ", which is shorter than model.continuing_subword_prefix");
      impl_->merges.push_back({part_id(left, rank), part_id(right, rank),
                               part_id(left + right.substr(prefix), rank),
                               static_cast<std::uint32_t>(rank)});
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
    check_input(found != ids_.end() && impl_->tokens[found->second].in_model, path_,
                ": model.merges[", rank, "] needs the token ", printable(spelling),
                ", which is not in model.vocab");
    return static_cast<std::int32_t>(found->second);
  }

  std::string path_;
  Fields top_;
  const Json* merges_ = nullptr;      // in top_
  const Json* vocabulary_ = nullptr;  // in top_
  std::shared_ptr<Tokenizer::Impl> impl_ = std::make_shared<Tokenizer::Impl>();
  std::vector<std::optional<std::string>> spellings_;  // by id
  std::vector<TokenKind> kinds_;                       // by id
  std::vector<std::size_t> outside_;  // ids of added tokens that the model does not have
  std::unordered_map<std::string, std::size_t> ids_;
};

}  // namespace

std::shared_ptr<Tokenizer::Impl> detail::load_tokenizer_impl(const std::string& path) {
  return Reader(path).read();
}

Tokenizer Tokenizer::load(const std::string& path) { return Impl::made(load_tokenizer_impl(path)); }

}  // namespace rapt
