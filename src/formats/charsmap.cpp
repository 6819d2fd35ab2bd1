#include "formats/charsmap.h"

#include <array>
#include <cstring>

#include "base/input.h"
#include "formats/characters.h"
#include "formats/unicode.h"

namespace rapt {
namespace {

std::string bytes_of_base64(const std::string& text, const std::string& source) {
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t letters = text.find_last_not_of('=') + 1;
  check_input(text.size() % 4 == 0 && text.size() - letters <= 2, source,
              ": normalizer.precompiled_charsmap is not base64: it has ", text.size(), " letters");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (std::size_t i = 0; i < letters; ++i) {
    const std::size_t value = alphabet.find(text[i]);
    check_input(value != std::string_view::npos, source,
                ": normalizer.precompiled_charsmap is not base64 at letter ", i);
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

/// The fields of a unit of the double array, as Darts packs them.
struct Unit {
  std::uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7FFFFFFF; }
  std::uint32_t label() const { return bits & 0x800000FF; }
  std::uint32_t offset() const { return (bits >> 10) << ((bits & 1 << 9) >> 6); }
};

}  // namespace

CharsMapStep::CharsMapStep(const std::string& base64, const std::string& source) {
  const std::string bytes = bytes_of_base64(base64, source);
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
    return value;
  };
  if (bytes.empty()) return;
  check_input(bytes.size() >= 4 && word(0) % 4 == 0 && word(0) <= bytes.size() - 4, source,
              ": normalizer.precompiled_charsmap has ", bytes.size(),
              " bytes, too few for its trie");
  units_.resize(word(0) / 4);
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i] = word(4 + 4 * i);
  texts_ = bytes.substr(4 + 4 * units_.size());
  check_input(valid_length(texts_) == texts_.size(), source,
              ": normalizer.precompiled_charsmap has replacements that are not UTF-8");
}

std::optional<std::string_view> CharsMapStep::find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::size_t at = Unit{units_[0]}.offset();
  for (const char letter : text) {
    const auto byte = static_cast<std::uint8_t>(letter);
    at ^= byte;
    if (byte == 0 || at >= units_.size()) return std::nullopt;
    const Unit unit{units_[at]};
    if (unit.label() != byte) return std::nullopt;
    at ^= unit.offset();
    if (!unit.has_leaf()) continue;
    if (at >= units_.size()) return std::nullopt;
    const std::size_t begin = Unit{units_[at]}.value();
    // A place outside, or in the middle of a character, is damage; it replaces nothing.
    if (begin > texts_.size()) return std::nullopt;
    if (begin < texts_.size() && (static_cast<unsigned char>(texts_[begin]) & 0xC0) == 0x80)
      return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

NormalText CharsMapStep::run(NormalText in) const {
  constexpr std::size_t longest_cluster = 6;
  NormalText out{{}, 0, in.most};
  out.text.reserve(in.text.size());
  const std::string_view text = in.text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = grapheme_length(text.substr(at));
    const std::string_view cluster = text.substr(at, length);
    // A short cluster is replaced as a whole, even if only its beginning is in the table: the
    // reference does so, and models are trained with it.
    const auto whole = length < longest_cluster ? find(cluster) : std::nullopt;
    if (whole)
      out.add(*whole);
    else
      for_each_character(
          cluster, [&](char32_t, std::string_view bytes) { out.add(find(bytes).value_or(bytes)); });
    if (at < in.front) out.front = out.text.size();
    at += length;
  }
  return out;
}

}  // namespace rapt
