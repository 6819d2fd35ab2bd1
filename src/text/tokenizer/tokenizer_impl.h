#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/indexed_vector.h"
#include "formats/config/json.h"
#include "rapt/models/tokenizer.h"
#include "text/models/bpe.h"
#include "text/stages/decoder.h"
#include "text/stages/normalizer.h"
#include "text/stages/pre_tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/post_processor.h"

namespace rapt::detail {

enum class TokenKind : std::uint8_t {
  piece,    // of text
  added,    // a word that is matched before the text is split
  special,  // decodes to no text by default
};

enum class ModelKind { bpe, word_piece, word_level, unigram };

}  // namespace rapt::detail

namespace rapt {
using namespace detail;

struct Tokenizer::Impl {
  struct Token {
    std::string bytes;  // its bytes in a byte-level tokenizer, its spelling otherwise
    TokenKind kind = TokenKind::piece;
    bool in_model = true;  // the model may give it; otherwise only added tokens are matched
    bool foreign = false;  // in a byte-level tokenizer: has letters that stand for no byte
  };
  /// The parts of a tokenizer.json; null where it has none.
  struct Parts {
    Json normalizer, pre_tokenizer, post_processor, decoder;
  };

  IndexedVector<Token> tokens;  // by id
  std::vector<Merge> merges;    // of BPE
  std::vector<double> scores;   // of Unigram, by id
  ModelKind kind = ModelKind::bpe;
  Bpe::Options options;            // of every kind, as far as it has them
  std::size_t longest_word = 100;  // WordPiece, in characters
  std::vector<AddedToken> added;   // by id
  SpecialTokens special;
  Parts parts;

  // Filled in by read_parts().
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  bool byte_tokens = false;   // tokens are bytes
  bool concatenates = false;  // text is the bytes of its tokens and nothing else
  bool letters = false;       // words are spelled with letters for bytes

  // Filled in by build().
  std::unordered_map<std::string_view, std::int32_t> ids;  // of the model, by bytes
  std::map<std::string, std::int32_t, std::less<>> added_ids;
  std::shared_ptr<const WordModel> model;
  const Bpe* bpe = nullptr;  // the model, if it is one
  AddedTokens finder;
  std::unordered_map<std::int32_t, std::string> normal_names;  // of added tokens that differ

  /// Needs kind, options and all tokens. Throws std::runtime_error, beginning with `source`, for
  /// anything unsupported.
  void read_parts(const std::string& source);
  /// Throws std::runtime_error, beginning with `source`, if two tokens are the same or a merge
  /// occurs twice.
  void build(const std::string& source);

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  std::string decode(std::span<const std::int32_t> ids, const DecodeOptions& options) const;
  std::string spelling(std::int32_t id) const;

  static Tokenizer made(std::shared_ptr<Impl> impl) { return Tokenizer(std::move(impl)); }
};

}  // namespace rapt

namespace rapt::detail {

inline constexpr const char* eos_name = "<|endoftext|>";
inline constexpr const char* pad_name = "<|padding|>";
inline constexpr Index max_vocab_size = 10'000'000;
/// Bytes; they bound the work per byte of text. BPE never searches for its pieces.
inline constexpr std::size_t longest_token = 4096, longest_added = 128;

/// A tokenizer.json. Throws std::runtime_error.
std::shared_ptr<Tokenizer::Impl> load_tokenizer_impl(const std::string& path);
/// A tokenizer of the 256 bytes and nothing else.
std::shared_ptr<Tokenizer::Impl> byte_impl();
/// Adds the two special tokens and builds the tokenizer.
Tokenizer finished(std::shared_ptr<Tokenizer::Impl> impl);

}  // namespace rapt::detail
