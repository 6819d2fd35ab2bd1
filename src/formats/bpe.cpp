#include "formats/bpe.h"

#include <algorithm>
#include <queue>

#include "base/check.h"
#include "formats/byte_tokens.h"
#include "formats/characters.h"

namespace rapt {
namespace {

constexpr std::uint32_t none = 0xFFFFFFFF;

/// A list of tokens and a heap of pairs, so a long word costs n log n.
class LongMerger {
 public:
  LongMerger(const PairTable& pairs, std::vector<std::int32_t>& ids, std::size_t begin)
      : pairs_(pairs), ids_(ids), begin_(begin) {
    check(ids.size() - begin < none, "tokenizer: a word of ", ids.size() - begin,
          " letters is too long");
    const auto size = static_cast<std::uint32_t>(ids.size() - begin);
    links_.resize(size);
    for (std::uint32_t i = 0; i < size; ++i)
      links_[i] = {ids[begin + i], i == 0 ? none : i - 1, i + 1 == size ? none : i + 1};
    for (std::uint32_t i = 0; i < size; ++i) consider(i);
  }
  void run() {
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      merge(next);
    }
    ids_.resize(begin_);
    for (std::uint32_t at = 0; at != none; at = links_[at].next) ids_.push_back(links_[at].id);
  }

 private:
  struct Link {
    std::int32_t id;  // -1: has gone into the one before it
    std::uint32_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank, place;
    std::int32_t left, right, result;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, place) > std::pair(other.rank, other.place);
    }
  };

  void consider(std::uint32_t place) {
    const Link& link = links_[place];
    if (link.next == none) return;
    const std::int32_t right = links_[link.next].id;
    if (const Joined* joined = pairs_.find(link.id, right))
      candidates_.push({joined->rank, place, link.id, right, joined->result});
  }
  void merge(const Candidate& candidate) {
    Link& left = links_[candidate.place];
    // A candidate of the past: one of the two has been merged otherwise.
    if (left.id != candidate.left || left.next == none || links_[left.next].id != candidate.right)
      return;
    Link& right = links_[left.next];
    left.id = candidate.result;
    left.next = right.next;
    right.id = -1;
    if (left.next != none) links_[left.next].previous = candidate.place;
    consider(candidate.place);
    if (left.previous != none) consider(left.previous);
  }

  const PairTable& pairs_;
  std::vector<std::int32_t>& ids_;
  std::size_t begin_;
  std::vector<Link> links_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

}  // namespace

Bpe::Bpe(const std::vector<Trie::Entry>& pieces, const std::vector<Merge>& merges, Options options)
    : pieces_(pieces), pairs_(merges.size()), options_(std::move(options)) {
  for (const Merge& merge : merges)
    pairs_.insert(merge.left, merge.right, {merge.rank, merge.result});
  for (int byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<std::uint8_t>(byte);
    const std::string letter(1, static_cast<char>(byte));
    byte_ids_[value] =
        pieces_.find(options_.letters == Letters::bytes ? letter : byte_token(value));
  }
}

void Bpe::append(std::string_view word, Ids& ids) const {
  constexpr std::size_t longest_short = 40;
  if (options_.whole_words) {
    const std::int32_t whole = pieces_.find(word);
    if (whole != Trie::none) return ids.push_back(whole);
  }
  const std::size_t begin = ids.size();
  append_letters(word, ids);
  const std::size_t count = ids.size() - begin;
  if (count < 2) return;
  if (count <= longest_short)
    merge_short(begin, ids);
  else
    LongMerger(pairs_, ids, begin).run();
}

void Bpe::append_letters(std::string_view word, Ids& ids) const {
  bool waiting = false;  // an unknown letter that others may join
  const auto found = [&](std::int32_t id) {
    if (waiting) ids.push_back(*options_.unknown);
    waiting = false;
    ids.push_back(id);
  };
  std::string spelled;
  for (std::size_t at = 0; at < word.size();) {
    const bool bytes = options_.letters == Letters::bytes;
    const std::size_t length = bytes ? 1 : first_character(word.substr(at)).length;
    std::string_view letter = word.substr(at, length);
    const bool prefixed = at > 0 && !options_.prefix.empty();
    at += length;
    if (prefixed || (at == word.size() && !options_.suffix.empty())) {
      spelled = (prefixed ? options_.prefix : "") + std::string(letter) +
                (at == word.size() ? options_.suffix : "");
      letter = spelled;
    }
    const std::int32_t id =
        bytes ? byte_ids_[static_cast<std::uint8_t>(letter[0])] : pieces_.find(letter);
    if (id != Trie::none)
      found(id);
    else
      append_unknown(letter, waiting, ids);
  }
  if (waiting) ids.push_back(*options_.unknown);
}

void Bpe::append_unknown(std::string_view letter, bool& waiting, Ids& ids) const {
  const auto id = [&](char byte) { return byte_ids_[static_cast<std::uint8_t>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(letter.begin(), letter.end(), [&](char byte) { return id(byte) >= 0; })) {
    for (const char byte : letter) ids.push_back(id(byte));
    return;
  }
  if (!options_.unknown) return;
  if (waiting && !options_.fuse_unknown) ids.push_back(*options_.unknown);
  waiting = true;
}

void Bpe::merge_short(std::size_t begin, Ids& ids) const {
  std::array<std::uint32_t, 64> ranks;
  std::array<std::int32_t, 64> results;
  std::int32_t* word = ids.data() + begin;
  std::size_t count = ids.size() - begin;
  const auto consider = [&](std::size_t i) {
    const Joined* joined = pairs_.find(word[i], word[i + 1]);
    ranks[i] = joined == nullptr ? none : joined->rank;
    results[i] = joined == nullptr ? -1 : joined->result;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) consider(i);
  while (count > 1) {
    auto* const end = ranks.begin() + (count - 1);
    const auto at = static_cast<std::size_t>(std::min_element(ranks.begin(), end) - ranks.begin());
    if (ranks[at] == none) break;
    word[at] = results[at];
    std::copy(word + at + 2, word + count, word + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + (count - 1), ranks.begin() + at);
    std::copy(results.begin() + at + 1, results.begin() + (count - 1), results.begin() + at);
    --count;
    if (at + 1 < count) consider(at);
    if (at > 0) consider(at - 1);
  }
  ids.resize(begin + count);
}

}  // namespace rapt
