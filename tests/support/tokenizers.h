#pragma once

#include <initializer_list>
#include <string>

#include "formats/config/json.h"
#include "rapt/models/tokenizer.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;

using Ids = std::vector<std::int32_t>;

inline constexpr EncodeOptions text_only{.add_special_tokens = false};

/// {"a": 0, "b": 1, ...}
inline Json vocabulary_of(std::initializer_list<const char*> tokens) {
  Json vocabulary = Json::object();
  for (const char* token : tokens) vocabulary[token] = vocabulary.size();
  return vocabulary;
}

inline Json added_token(int id, const char* content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

/// A Precompiled normalizer's table, in base64, with one entry: by default A becomes a.
inline std::string table_of_one(char from = 'A', const std::string& to = "a") {
  const auto byte = static_cast<std::uint8_t>(from);
  std::vector<std::uint32_t> units((byte | 1U) + 1);
  units[0] = 1 << 10;                            // children are at 1 xor their byte
  units[1U ^ byte] = 1U << 10 | 1U << 8 | byte;  // ends an entry, whose value is 1 further
  units[byte] = 0x80000000;                      // the text at 0
  std::string bytes;
  const auto put = [&](std::uint32_t word) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(word >> (8 * i) & 0xFF);
  };
  put(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) put(unit);
  bytes += to + std::string(2, '\0');
  bytes.resize((bytes.size() + 2) / 3 * 3);
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) bits = bits << 8 | static_cast<unsigned char>(bytes[i + k]);
    for (int shift = 18; shift >= 0; shift -= 6) text += letters[bits >> shift & 63];
  }
  return text;
}

/// The tokenizer of a file with this text.
inline Tokenizer tokenizer_of(const Json& file) {
  const TemporaryFolder folder;
  put(folder / "tokenizer.json", file.dump());
  return Tokenizer::load(folder / "tokenizer.json");
}

}  // namespace rapt::test
