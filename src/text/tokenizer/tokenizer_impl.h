#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/config/json.h"
#include "rapt/tokenizer.h"
#include "text/models/bpe.h"
#include "text/stages/decoder.h"
#include "text/stages/normalizer.h"
#include "text/stages/pre_tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/special_tokens.h"

namespace rapt {

enum class TokenKind : std::uint8_t {
  piece,    // of text
  added,    // a word that is found before the text is cut
  special,  // stands for no text
};

enum class ModelKind { bpe, word_piece, word_level, unigram };

struct Tokenizer::Body {
  struct Token {
    std::string bytes;  // what it stands for if tokens are bytes, its spelling otherwise
    TokenKind kind = TokenKind::piece;
    bool in_model = true;  // the model may give it; otherwise it is found as an added one only
    bool foreign = false;  // has letters that stand for no byte, where tokens are bytes
  };
  /// The parts of a tokenizer.json as it spells them; null where there is none.
  struct Parts {
    Json normalizer, pre_tokenizer, post_processor, decoder;
  };

  std::vector<Token> tokens;   // by id
  std::vector<Merge> merges;   // of BPE
  std::vector<double> scores;  // of Unigram, by id
  ModelKind kind = ModelKind::bpe;
  Bpe::Options options;            // of every kind, as far as it has them
  std::size_t longest_word = 100;  // WordPiece, in characters
  std::vector<AddedToken> added;   // by id
  SpecialTokens special;
  Parts parts;

  // What follows is found by read_parts().
  Normalizer normalizer;
  PreTokenizer cutter;
  EncodingFrame frame;
  Decoder decoder;
  bool byte_tokens = false;   // tokens are bytes
  bool concatenates = false;  // text is the bytes of its tokens and nothing else
  bool letters = false;       // words are spelled with letters for bytes

  // What follows is found by build().
  std::unordered_map<std::string_view, std::int32_t> ids;  // of the model, by bytes
  std::map<std::string, std::int32_t, std::less<>> added_ids;
  std::shared_ptr<const WordModel> model;
  const Bpe* bpe = nullptr;  // the model, if it is one
  AddedTokens finder;
  std::unordered_map<std::int32_t, std::string> normal_names;  // of added tokens that differ

  /// Throws std::runtime_error, beginning with `source`, for what is not understood. Needs kind,
  /// options and as many tokens as there will be.
  void read_parts(const std::string& source);
  /// Throws std::runtime_error, beginning with `source`, if two tokens are the same or a merge
  /// comes twice.
  void build(const std::string& source);

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const;
  std::string spelling(std::int32_t id) const;

  static Tokenizer made(std::shared_ptr<Body> body) { return Tokenizer(std::move(body)); }
};

inline constexpr const char* end_name = "<|endoftext|>";
inline constexpr const char* padding_name = "<|padding|>";
inline constexpr Index max_entries = 10'000'000;
/// Bytes; they bound the work per byte of text. Pieces of BPE are never searched for.
inline constexpr std::size_t longest_token = 4096, longest_added = 128;

/// A tokenizer.json. Throws std::runtime_error.
std::shared_ptr<Tokenizer::Body> read_tokenizer_body(const std::string& path);
/// A body with the 256 bytes and nothing else.
std::shared_ptr<Tokenizer::Body> byte_body();
/// Adds the two special tokens and finds what is derived.
Tokenizer finished(std::shared_ptr<Tokenizer::Body> body);

}  // namespace rapt
