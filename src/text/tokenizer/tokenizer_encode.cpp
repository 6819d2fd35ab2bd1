#include "base/check.h"
#include "base/sizes.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/characters.h"

namespace rapt {
using namespace detail;
namespace {

/// One call of encode. Words repeat in a long text, so their tokens are cached.
class EncodeRun {
 public:
  EncodeRun(const Tokenizer::Impl& impl, const EncodeOptions& options, std::size_t bytes)
      : impl_(impl), options_(options), keeps_(bytes >= shortest_worth) {
    ids_.reserve(bytes / 4);
  }

  /// A stretch of valid UTF-8.
  void add(Piece text) {
    const auto section = [&](std::string_view part, std::int32_t id) {
      if (id != AddedTokens::none) return ids_.push_back(id);
      add_section({part, part.data() == text.text.data() ? text.front : 0});
    };
    impl_.finder.for_each(text.text, {AddedTokens::Text::original, options_.parse_special},
                          std::cref(section));
  }
  void add_id(std::int32_t id) { ids_.push_back(id); }
  std::vector<std::int32_t> result() { return std::move(ids_); }

 private:
  static constexpr std::size_t shortest_worth = 512;
  static constexpr std::size_t longest_kept = 64;
  static constexpr std::size_t most_kept = 1 << 18;
  struct Place {
    std::size_t begin, end;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  /// Text between added tokens that are matched before normalization.
  void add_section(Piece section) {
    NormalText normal;
    if (!impl_.normalizer.empty()) {
      normal = impl_.normalizer.run(section.text);
      section = {normal.text, section.front > 0 ? normal.front : 0};
    }
    const auto word = [&](std::string_view text) { add_word(text); };
    const auto piece = [&](std::string_view part, std::int32_t id) {
      if (id != AddedTokens::none) return ids_.push_back(id);
      const auto begin = to_size(part.data() - section.text.data());
      impl_.pre_tokenizer.for_each_word({part, section.front > begin ? section.front - begin : 0},
                                        std::cref(word));
    };
    impl_.finder.for_each(section.text, {AddedTokens::Text::normalized, options_.parse_special},
                          std::cref(piece));
  }
  void add_word(std::string_view word) {
    if (!keeps_ || word.size() > longest_kept) return make_word(word);
    const auto known = kept_.find(word);
    if (known != kept_.end()) {
      // By index: the vector may move while it grows.
      for (std::size_t i = known->second.begin; i < known->second.end; ++i) ids_.push_back(ids_[i]);
      return;
    }
    const std::size_t begin = ids_.size();
    make_word(word);
    if (kept_.size() < most_kept) kept_.emplace(word, Place{begin, ids_.size()});
  }
  void make_word(std::string_view word) {
    if (impl_.letters)
      impl_.model->append(letters_of(word), ids_);
    else
      impl_.model->append(word, ids_);
  }

  const Tokenizer::Impl& impl_;
  const EncodeOptions& options_;
  bool keeps_;
  std::vector<std::int32_t> ids_;
  std::unordered_map<std::string, Place, Hash, std::equal_to<>> kept_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::Impl::encode(std::string_view text,
                                                  const EncodeOptions& how) const {
  EncodeRun run(*this, how, text.size());
  std::size_t valid = valid_length(text);
  if (valid < text.size() && !byte_tokens) {
    const std::string whole = repaired(text);
    run.add({whole, 1});
    return run.result();
  }
  std::size_t front = 1;
  for (; !text.empty(); front = 0, valid = valid_length(text)) {
    run.add({text.substr(0, valid), front});
    if (valid < text.size() && bpe->byte_id(static_cast<std::uint8_t>(text[valid])) >= 0)
      run.add_id(bpe->byte_id(static_cast<std::uint8_t>(text[valid])));
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return run.result();
}

std::string Tokenizer::Impl::spelling(std::int32_t id) const {
  const Token& token = tokens[id];
  return byte_tokens && !token.foreign ? letters_of(token.bytes) : token.bytes;
}

std::string Tokenizer::Impl::decode(std::span<const std::int32_t> list,
                                    const DecodeOptions& how) const {
  std::string text;
  std::vector<std::string> spellings;
  for (const std::int32_t id : list) {
    check(id >= 0 && id < static_cast<std::int64_t>(tokens.size()), "tokenizer: id ", id,
          ", expected 0 to ", static_cast<std::int64_t>(tokens.size()) - 1);
    const Token& token = tokens[id];
    if (token.kind == TokenKind::special && how.skip_special_tokens) continue;
    const auto renamed = normal_names.find(id);
    if (concatenates)
      text += renamed == normal_names.end() ? token.bytes : renamed->second;
    else
      spellings.push_back(renamed == normal_names.end() ? spelling(id) : renamed->second);
  }
  return concatenates ? text : decoder.text(std::move(spellings));
}

}  // namespace rapt
