#include <algorithm>
#include <unordered_set>

#include "base/io/input.h"
#include "formats/config/short_decimal.h"
#include "text/models/unigram.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {

void Tokenizer::Body::read_parts(const std::string& source) {
  normalizer = Normalizer(parts.normalizer, source);
  cutter = PreTokenizer(parts.pre_tokenizer, source);
  frame = EncodingFrame(parts.post_processor, source, static_cast<Index>(tokens.size()));
  decoder = Decoder(parts.decoder, source);
  const bool plain = kind == ModelKind::bpe && options.prefix.empty() && options.suffix.empty() &&
                     !options.byte_fallback;
  byte_tokens = cutter.bytes() && plain;
  letters = cutter.bytes() && !plain;
  const bool bytes_again = parts.decoder.is_null() || parts.decoder["type"] == "ByteLevel";
  concatenates = byte_tokens && bytes_again;
  options.letters = byte_tokens ? Bpe::Letters::bytes : Bpe::Letters::characters;
}

void Tokenizer::Body::build(const std::string& source) {
  std::vector<Trie::Entry> pieces;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const Token& token = tokens[id];
    check_input(token.bytes.size() <= longest_token || kind == ModelKind::bpe, source, ": token ",
                id, " has ", token.bytes.size(), " bytes, the limit is ", longest_token);
    if (!token.in_model || token.foreign) continue;
    if (token.bytes.empty()) {  // nothing becomes it, however many there are
      ids.emplace(token.bytes, static_cast<std::int32_t>(id));
      continue;
    }
    if (!ids.emplace(token.bytes, static_cast<std::int32_t>(id)).second)
      fail_input(source, ": token ", printable(spelling(static_cast<std::int32_t>(id))),
                 " has two ids, the second is ", id);
    pieces.emplace_back(token.bytes, static_cast<std::int32_t>(id));
  }
  for (const AddedToken& token : added) {
    added_ids.emplace(token.content, token.id);
    if (!token.normalized || normalizer.empty()) continue;
    // Text comes back as it was found, and it was found in normalized text.
    const std::string name = normalizer.run(token.content).text;
    if (name != token.content)
      normal_names.emplace(token.id, byte_tokens ? bytes_of_letters(name).value_or(name) : name);
  }
  finder = AddedTokens(added, normalizer);
  std::unordered_set<std::uint64_t> pairs;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto key = static_cast<std::uint64_t>(merges[rank].left) << 32 |
                     static_cast<std::uint32_t>(merges[rank].right);
    check_input(pairs.insert(key).second, source, ": merge ", rank, " occurs twice");
  }
  const std::int32_t unknown = options.unknown.value_or(-1);
  check_input(unknown >= 0 || kind == ModelKind::bpe || kind == ModelKind::unigram, source,
              ": model.unk_token is not there, but needed");
  switch (kind) {
    case ModelKind::word_piece:
      model = std::make_shared<WordPiece>(
          std::move(pieces), WordPiece::Options{unknown, options.prefix, longest_word});
      return;
    case ModelKind::word_level:
      model = std::make_shared<WordLevel>(std::move(pieces), unknown);
      return;
    case ModelKind::unigram: {
      std::vector<double> read_scores(scores.size());
      std::transform(scores.begin(), scores.end(), read_scores.begin(), divided_decimal);
      model = std::make_shared<Unigram>(pieces, std::move(read_scores),
                                        Unigram::Options{options.unknown, options.byte_fallback});
      return;
    }
    case ModelKind::bpe:
      break;
  }
  const auto made = std::make_shared<Bpe>(pieces, merges, options);
  bpe = made.get();
  model = made;
}

std::shared_ptr<Tokenizer::Body> byte_body() {
  auto body = std::make_shared<Tokenizer::Body>();
  for (int byte = 0; byte < 256; ++byte)
    body->tokens.push_back({std::string(1, static_cast<char>(byte))});
  const Json letters{{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  body->parts.pre_tokenizer = body->parts.decoder = letters;
  return body;
}

Tokenizer finished(std::shared_ptr<Tokenizer::Body> body) {
  for (const char* name : {end_name, padding_name}) {
    const auto id = static_cast<std::int32_t>(body->tokens.size());
    body->tokens.push_back({name, TokenKind::special});
    body->added.push_back({.id = id, .content = name, .special = true});
    (body->special.end ? body->special.padding : body->special.end) = id;
  }
  body->read_parts("tokenizer");
  body->build("tokenizer");
  return Tokenizer::Body::made(std::move(body));
}

}  // namespace rapt
