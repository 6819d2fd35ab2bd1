#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <deque>
#include <set>

#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

namespace rapt::detail {
namespace {

bool alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(last_character(text.substr(0, begin)).code)) return false;
  return end == text.size() || !is_word(first_character(text.substr(end)).code);
}

std::size_t spaces_before(std::string_view text, std::size_t begin, std::size_t least) {
  while (begin > least) {
    const Character last = last_character(text.substr(0, begin));
    if (!is_space(last.code)) break;
    begin -= last.length;
  }
  return std::max(begin, least);
}

std::size_t spaces_after(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const Character next = first_character(text.substr(end));
    if (!is_space(next.code)) break;
    end += next.length;
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer)
    : tokens_(tokens) {
  // Of two with the same spelling the special one wins.
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.special && !b.special;
  });
  std::deque<std::string> contents;
  std::vector<Trie::Entry> original, normalized;
  std::set<std::string_view> seen[2];
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    contents.push_back(token.normalized ? normalizer.run(token.content).text : token.content);
    const std::string_view content = contents.back();
    if (content.empty() || !seen[token.normalized ? 1 : 0].insert(content).second) continue;
    (token.normalized ? normalized : original).emplace_back(content, static_cast<std::int32_t>(i));
  }
  original_ = {Trie(original), original.empty()};
  normalized_ = {Trie(normalized), normalized.empty()};
}

void AddedTokens::for_each(std::string_view text, Search search, const Visit& visit) const {
  const Set& set = search.text == Text::original ? original_ : normalized_;
  std::size_t done = 0, spaces_end = 0;
  for (std::size_t at = 0; at < text.size() && !set.empty;) {
    const Trie::Found found = set.words.longest(text.substr(at));
    if (found.value == Trie::none) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + found.length;
    at = end;
    const AddedToken& token = tokens_[found.value];
    if (token.special && !search.special) continue;
    if (token.single_word && !alone(text, begin, end)) continue;
    if (token.lstrip) begin = spaces_before(text, begin, done);
    // A run of spaces is scanned once, however many tokens are in it.
    if (token.rstrip) end = spaces_end = end < spaces_end ? spaces_end : spaces_after(text, end);
    if (begin > done) visit(text.substr(done, begin - done), none);
    visit(text.substr(begin, end - begin), token.id);
    done = end;
  }
  if (done < text.size()) visit(text.substr(done), none);
}

}  // namespace rapt::detail
