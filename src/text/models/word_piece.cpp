#include <algorithm>

#include "base/sizes.h"
#include "text/models/word_model.h"

namespace rapt::detail {

WordPiece::WordPiece(std::vector<Trie::Entry> pieces, Options options)
    : pieces_(std::move(pieces)), options_(std::move(options)) {
  const std::uint32_t node = pieces_.walk(options_.prefix);
  if (options_.prefix.empty() || node != Trie::root) inside_ = node;
}

void WordPiece::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto characters = to_size(
      std::count_if(word.begin(), word.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
  const std::size_t before = ids.size();
  bool known = characters <= options_.longest_word;
  for (std::size_t at = 0; known && at < word.size();) {
    Trie::Found found;
    if (at == 0)
      found = pieces_.longest(word);
    else if (inside_)
      found = pieces_.longest(word.substr(at), *inside_);
    known = found.value != Trie::none;
    if (known) ids.push_back(found.value);
    at += found.length;
  }
  if (known) return;
  ids.resize(before);
  ids.push_back(options_.unknown);
}

}  // namespace rapt::detail
