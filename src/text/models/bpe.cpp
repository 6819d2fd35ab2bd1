#include "text/models/bpe.h"

#include <algorithm>
#include <queue>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "text/models/byte_tokens.h"
#include "text/unicode/characters.h"

namespace rapt::detail {
namespace {

constexpr std::uint32_t none = 0xFFFFFFFF;
constexpr std::size_t longest_short = 40;  // letters; beyond, a heap is faster

/// A list of tokens and a heap of pairs, so a long word costs n log n.
class LongMerger {
 public:
  LongMerger(const MergeTable& pairs, std::int32_t* word, std::size_t count)
      : pairs_(pairs), word_(word), links_(count) {
    check(count < none, "tokenizer: a word of ", count, " letters is too long");
    const auto size = static_cast<std::uint32_t>(count);
    for (std::uint32_t i = 0; i < size; ++i)
      links_[i] = {word[i], i == 0 ? none : i - 1, i + 1 == size ? none : i + 1};
    std::vector<std::uint64_t> candidates;
    candidates.reserve(count);
    for (std::uint32_t i = 0; i < size; ++i)
      if (const Joined* joined = joined_at(i)) candidates.push_back(candidate(joined->rank, i));
    candidates_ = Heap(std::greater<>(), std::move(candidates));
  }
  /// How many tokens are left.
  std::size_t run() {
    while (!candidates_.empty()) {
      const std::uint64_t next = candidates_.top();
      candidates_.pop();
      merge(static_cast<std::uint32_t>(next >> 32), static_cast<std::uint32_t>(next));
    }
    std::size_t count = 0;
    for (std::uint32_t at = 0; at != none; at = links_[at].next) word_[count++] = links_[at].id;
    return count;
  }

 private:
  struct Link {
    std::int32_t id;  // -1: merged into the one before it
    std::uint32_t previous, next;
  };
  using Heap = std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>>;

  static std::uint64_t candidate(std::uint32_t rank, std::uint32_t place) {
    return static_cast<std::uint64_t>(rank) << 32 | place;
  }
  const Joined* joined_at(std::uint32_t place) const {
    const Link& link = links_[place];
    if (link.id < 0 || link.next == none) return nullptr;
    return pairs_.find(link.id, links_[link.next].id);
  }
  void consider(std::uint32_t place) {
    if (const Joined* joined = joined_at(place)) candidates_.push(candidate(joined->rank, place));
  }
  void merge(std::uint32_t rank, std::uint32_t place) {
    const Joined* joined = joined_at(place);
    // A stale candidate: one of the two has been merged with another.
    if (joined == nullptr || joined->rank != rank) return;
    Link& left = links_[place];
    Link& right = links_[left.next];
    left.id = joined->result;
    left.next = right.next;
    right.id = -1;
    if (left.next != none) links_[left.next].previous = place;
    consider(place);
    if (left.previous != none) consider(left.previous);
  }

  const MergeTable& pairs_;
  std::int32_t* word_;
  std::vector<Link> links_;
  Heap candidates_;
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
  find_bridges(merges);
}

void Bpe::find_bridges(const std::vector<Merge>& merges) {
  if (!options_.prefix.empty() || !options_.suffix.empty()) return;  // letters have many spellings
  struct Ends {
    std::int32_t first = -1, last = -1;  // letters; -1 until known
  };
  std::int32_t highest = -1;
  for (const Merge& merge : merges)
    highest = std::max({highest, merge.left, merge.right, merge.result});
  IndexedVector<Ends> ends(highest + 1);
  const auto at = [&](std::int32_t id) -> Ends& { return ends[id]; };
  for (std::int32_t id = 0; id <= highest; ++id) at(id) = {id, id};
  for (const Merge& merge : merges) at(merge.result) = {};
  // A token that is both a letter and the result of a merge, as when it merges with an empty token,
  // has no definite ends.
  for (const Merge& merge : merges)
    if (merge.result == merge.left || merge.result == merge.right) return;
  for (const std::int32_t id : byte_ids_)
    if (id >= 0 && id <= highest && at(id).first < 0) return;
  if (options_.unknown && *options_.unknown <= highest && at(*options_.unknown).first < 0) return;
  // Most files list parts before the whole, so one pass is enough; a token that never gets ends can
  // never be made.
  int passes = 0;
  for (bool fresh = true; fresh; ++passes) {
    if (passes == 20) return;
    fresh = false;
    for (const Merge& merge : merges) {
      if (at(merge.result).first >= 0) continue;
      const std::int32_t first = at(merge.left).first, last = at(merge.right).last;
      if (first >= 0 && last >= 0) at(merge.result) = {first, last}, fresh = true;
    }
  }
  MergeTable bridges(merges.size());
  for (const Merge& merge : merges) {
    const std::int32_t left = at(merge.left).last, right = at(merge.right).first;
    if (left >= 0 && right >= 0) bridges.insert(left, right, {0, 0});
  }
  bridges_ = std::move(bridges);
}

void Bpe::append(std::string_view word, Ids& ids) const {
  if (options_.ignore_merges) {
    const std::int32_t whole = pieces_.find(word);
    if (whole != Trie::none) return ids.push_back(whole);
  }
  const std::size_t begin = ids.size();
  append_letters(word, ids);
  std::size_t written = begin;
  for (std::size_t at = begin; at < ids.size();) {
    std::size_t end = at + 1;
    while (end < ids.size() && (!bridges_ || bridges_->find(ids[end - 1], ids[end]))) ++end;
    const std::size_t count = merged(ids.data() + at, end - at);
    std::copy_n(ids.data() + at, count, ids.data() + written);
    written += count;
    at = end;
  }
  ids.resize(written);
}

std::size_t Bpe::merged(std::int32_t* word, std::size_t count) const {
  if (count < 2) return count;
  return count <= longest_short ? merged_short(word, count) : LongMerger(pairs_, word, count).run();
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
  if (waiting && !options_.fuse_unk) ids.push_back(*options_.unknown);
  waiting = true;
}

std::size_t Bpe::merged_short(std::int32_t* word, std::size_t count) const {
  std::array<std::uint32_t, longest_short> ranks;
  std::array<std::int32_t, longest_short> results;
  const auto consider = [&](std::size_t i) {
    const Joined* joined = pairs_.find(word[i], word[i + 1]);
    ranks[i] = joined == nullptr ? none : joined->rank;
    results[i] = joined == nullptr ? -1 : joined->result;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) consider(i);
  while (count > 1) {
    auto* const end = ranks.begin() + (count - 1);
    const auto at = to_size(std::min_element(ranks.begin(), end) - ranks.begin());
    if (ranks[at] == none) break;
    word[at] = results[at];
    std::copy(word + at + 2, word + count, word + at + 1);
    std::copy(ranks.begin() + at + 1, ranks.begin() + (count - 1), ranks.begin() + at);
    std::copy(results.begin() + at + 1, results.begin() + (count - 1), results.begin() + at);
    --count;
    if (at + 1 < count) consider(at);
    if (at > 0) consider(at - 1);
  }
  return count;
}

}  // namespace rapt::detail
