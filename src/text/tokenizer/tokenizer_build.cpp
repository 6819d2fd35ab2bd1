#include <algorithm>
#include <unordered_set>

#include "base/io/check_input.h"
#include "formats/config/short_decimal.h"
#include "text/models/unigram.h"
#include "text/stages/byte_letters.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {
using namespace detail;

void Tokenizer::Impl::read_parts(const std::string& source) {
  normalizer = Normalizer(parts.normalizer, source);
  pre_tokenizer = PreTokenizer(parts.pre_tokenizer, source);
  post_processor = PostProcessor(parts.post_processor, source, static_cast<Index>(tokens.size()));
  decoder = Decoder(parts.decoder, source);
  const bool plain = kind == ModelKind::bpe && options.prefix.empty() && options.suffix.empty() &&
                     !options.byte_fallback;
  byte_tokens = pre_tokenizer.bytes() && plain;
  letters = pre_tokenizer.bytes() && !plain;
  const bool bytes_again = parts.decoder.is_null() || parts.decoder["type"] == "ByteLevel";
  concatenates = byte_tokens && bytes_again;
  options.letters = byte_tokens ? Bpe::Letters::bytes : Bpe::Letters::characters;
}

void Tokenizer::Impl::build(const std::string& source) {
  std::vector<Trie::Entry> pieces;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const Token& token = tokens[id];
    check_input(token.bytes.size() <= longest_token || kind == ModelKind::bpe, source, ": token ",
                id, " has ", token.bytes.size(), " bytes, the limit is ", longest_token);
    if (!token.in_model || token.foreign) continue;
    if (token.bytes.empty()) {  // no text becomes it, so there may be several
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
    // It is matched in normalized text, so it decodes to its normalized spelling.
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

std::shared_ptr<Tokenizer::Impl> detail::byte_impl() {
  auto impl = std::make_shared<Tokenizer::Impl>();
  for (int byte = 0; byte < 256; ++byte)
    impl->tokens.push_back({std::string(1, static_cast<char>(byte))});
  const Json letters{{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  impl->parts.pre_tokenizer = impl->parts.decoder = letters;
  return impl;
}

Tokenizer detail::finished(std::shared_ptr<Tokenizer::Impl> impl) {
  for (const char* name : {eos_name, pad_name}) {
    const auto id = static_cast<std::int32_t>(impl->tokens.size());
    impl->tokens.push_back({name, TokenKind::special});
    impl->added.push_back({.id = id, .content = name, .special = true});
    (impl->special.eos ? impl->special.pad : impl->special.eos) = id;
  }
  impl->read_parts("tokenizer");
  impl->build("tokenizer");
  return Tokenizer::Impl::made(std::move(impl));
}

}  // namespace rapt
