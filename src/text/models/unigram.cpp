#include "text/models/unigram.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "text/models/byte_tokens.h"
#include "text/unicode/characters.h"

namespace rapt::detail {

Unigram::Unigram(const std::vector<Trie::Entry>& pieces, std::vector<double> scores,
                 Options options)
    : pieces_(pieces), scores_(std::move(scores)), options_(options) {
  constexpr double penalty = 10;
  if (!scores_.empty())
    unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - penalty;
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte)
    byte_ids_[byte] = pieces_.find(byte_token(static_cast<std::uint8_t>(byte)));
}

std::vector<Unigram::Best> Unigram::best_split(std::string_view word) const {
  std::vector<Best> best(word.size() + 1);  // by where a piece ends
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    Best& target = best[end];
    if (target.id < 0 || score > target.score)
      target = {score, static_cast<std::uint32_t>(begin), id};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = first_character(word.substr(at)).length;
    const double so_far = best[at].score;
    bool single = false;
    std::uint32_t node = Trie::root;
    for (std::size_t end = at; end < word.size();) {
      node = pieces_.step(node, static_cast<std::uint8_t>(word[end++]));
      if (node == Trie::root) break;
      const std::int32_t id = pieces_.value(node);
      if (id == Trie::none) continue;
      offer(at, end, so_far + scores_[id], id);
      single = single || end - at == length;
    }
    if (!single) {
      check_input(options_.unknown.has_value(),
                  "tokenizer: the text has a character that is no token, and no token stands for "
                  "unknown ones");
      offer(at, at + length, so_far + unknown_score_, *options_.unknown);
    }
    at += length;
  }
  return best;
}

void Unigram::append(std::string_view word, std::vector<std::int32_t>& ids) const {
  check_input(word.size() < 0xFFFFFFFF, "tokenizer: a word of ", word.size(), " bytes is too long");
  const std::vector<Best> best = best_split(word);
  std::vector<std::uint32_t> ends;
  for (auto end = static_cast<std::uint32_t>(word.size()); end > 0; end = best[end].begin)
    ends.push_back(end);
  for (std::size_t i = ends.size(); i-- > 0;) {
    const Best& piece = best[ends[i]];
    if (piece.id != options_.unknown) {
      ids.push_back(piece.id);
      continue;
    }
    std::uint32_t end = ends[i];
    while (i > 0 && best[ends[i - 1]].id == options_.unknown) end = ends[--i];
    append_unknown(word.substr(piece.begin, end - piece.begin), ids);
  }
}

void Unigram::append_unknown(std::string_view letters, std::vector<std::int32_t>& ids) const {
  // Fused unknown letters may spell a token that no split used.
  const std::int32_t whole = pieces_.find(letters);
  if (whole != Trie::none) return ids.push_back(whole);
  const auto id = [&](char byte) { return byte_ids_[static_cast<std::uint8_t>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(letters.begin(), letters.end(), [&](char byte) { return id(byte) >= 0; })) {
    for (const char byte : letters) ids.push_back(id(byte));
    return;
  }
  ids.push_back(*options_.unknown);
}

}  // namespace rapt::detail
