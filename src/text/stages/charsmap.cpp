#include "text/stages/charsmap.h"

#include <array>
#include <cstring>

#include "base/io/check_input.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

namespace rapt::detail {
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

std::size_t characters_in(std::string_view text) {
  std::size_t count = 0;
  for (const char letter : text) count += (static_cast<unsigned char>(letter) & 0xC0) != 0x80;
  return count;
}

/// Which characters of the output come from the first one of the input. The reference counts
/// characters: each output character takes the place of one input character, surplus ones of a
/// replacement share the place of the one before, and missing ones are dropped behind the last
/// output character. At the very beginning there is none to drop them behind: the character after a
/// leading control character takes its place.
class FrontFinder {
 public:
  explicit FrontFinder(std::string_view front)
      : wanted_(characters_in(front)), found_(wanted_ == 0) {}

  /// `out` takes the place of `in`, which may be the same.
  void add(std::string_view in, std::string_view out) {
    if (found_) return;
    const std::size_t first = places_.size();
    for_each_character(out, [&](char32_t, std::string_view bytes) {
      places_.push_back({bytes.size(), 1});
    });
    std::size_t before = characters_in(in), after = places_.size() - first;
    for (; after > before; --after) places_[first + after - 1].taken = 0;
    if (after < before && !places_.empty()) places_.back().dropped += before - after;
    // The last one may still drop something.
    for (; next_ + 1 < places_.size() && !found_; ++next_)
      found_ = (taken_ += places_[next_].takes()) > wanted_;
  }

  /// In bytes of what came out.
  std::size_t bytes() const {
    std::size_t length = 0, taken = 0;
    for (const Place& place : places_) {
      // One that shares a place and drops what follows takes part of it.
      const std::size_t from_before = place.takes() == 0 ? 1 : 0;
      if (taken >= wanted_ + from_before) break;
      length += place.bytes;
      taken += place.takes();
    }
    return wanted_ == 0 ? 0 : length;
  }

 private:
  struct Place {
    std::size_t bytes, taken, dropped = 0;
    std::size_t takes() const { return taken + dropped; }
  };

  std::size_t wanted_;
  std::vector<Place> places_;
  std::size_t next_ = 0, taken_ = 0;  // of those places that will not change any more
  bool found_ = false;
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
  FrontFinder front(text.substr(0, in.front));
  const auto replace = [&](std::string_view from, std::string_view to) {
    out.add(to);
    front.add(from, to);
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = grapheme_length(text.substr(at));
    const std::string_view cluster = text.substr(at, length);
    // A short cluster is replaced as a whole, even if only its beginning is in the table: the
    // reference does so, and models are trained with it.
    const auto whole = length < longest_cluster ? find(cluster) : std::nullopt;
    if (whole)
      replace(cluster, *whole);
    else
      for_each_character(cluster, [&](char32_t, std::string_view bytes) {
        replace(bytes, find(bytes).value_or(bytes));
      });
    at += length;
  }
  out.front = std::min(front.bytes(), out.text.size());
  return out;
}

}  // namespace rapt::detail
