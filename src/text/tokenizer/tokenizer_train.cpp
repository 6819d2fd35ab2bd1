#include <algorithm>
#include <compare>
#include <numeric>
#include <queue>

#include "base/check.h"
#include "base/indexed_vector.h"
#include "base/threads/cancel_check.h"
#include "text/stages/byte_letters.h"
#include "text/stages/word_cutter.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace rapt {
using namespace detail;
namespace {

/// A pair seen once says nothing about other texts.
constexpr Index fewest = 2;

using WordCounts = std::unordered_map<std::string_view, Index>;

/// Words, places or merges between two cancel checks.
constexpr std::size_t check_interval = std::size_t{1} << 16;

WordCounts count_words(std::span<const std::string> texts, const CancelCheck& cancel_check) {
  const WordCutter cutter(Cut::gpt2);
  WordCounts counts;
  std::size_t words = 0;
  for (const std::string& text : texts)
    cutter.for_each_word(text, [&](std::string_view word) {
      ++counts[word];
      if (++words % check_interval == 0) check_cancelled(cancel_check);
    });
  return counts;
}

struct Pair {
  std::int32_t left, right;
  auto operator<=>(const Pair&) const = default;
};

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto key =
        static_cast<std::uint64_t>(pair.left) << 32 | static_cast<std::uint32_t>(pair.right);
    return static_cast<std::size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u);
  }
};

/// All distinct words in one list, as lists of tokens, and for every pair of neighbours how often
/// it occurs and where. Merging a pair visits only the places where it occurs.
class Words {
 public:
  Words(const WordCounts& counts, std::span<const std::int32_t> byte_order,
        const CancelCheck& cancel_check) {
    std::size_t letters = 0;
    for (const auto& [word, count] : counts) letters += word.size();
    check(letters < none, "Tokenizer::train: ", letters, " bytes of different words are too many");
    links_.reserve(letters);
    for (const auto& [word, count] : counts) add_word(word, count, byte_order);
    for (std::uint32_t i = 0; i < links_.size(); ++i) {
      if (links_[i].next != none) add({links_[i].token, links_[links_[i].next].token}, i);
      if (i % check_interval == 0) check_cancelled(cancel_check);
    }
    for (const auto& [pair, places] : pairs_) heap_.push({places.count, pair});
    raised_.clear();
  }

  /// The pair that occurs most often; of several the one with the smaller tokens.
  std::optional<Pair> most_frequent() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(top.pair);
      const Index count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count && count >= fewest) return top.pair;
      if (count >= fewest) heap_.push({count, top.pair});
    }
    return std::nullopt;
  }

  /// Never merges this pair.
  void drop(Pair pair) { pairs_.erase(pair); }

  void merge(Pair pair, std::int32_t result) {
    std::vector<std::uint32_t> places = std::move(pairs_[pair].places);
    // Left before right, or three equal tokens in a row would merge differently than in encode.
    if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
    for (const std::uint32_t place : places) merge_at(place, pair, result);
    pairs_.erase(pair);
    std::sort(raised_.begin(), raised_.end());
    raised_.erase(std::unique(raised_.begin(), raised_.end()), raised_.end());
    for (const Pair& raised : raised_)
      if (const auto found = pairs_.find(raised); found != pairs_.end())
        heap_.push({found->second.count, raised});
    raised_.clear();
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  struct Link {
    std::int32_t token;  // -1: merged into the one before it
    std::uint32_t previous, next;
    std::uint32_t word;
  };
  struct Places {
    Index count = 0;
    std::vector<std::uint32_t> places;  // some may have been merged with others since
  };
  struct Candidate {
    Index count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add_word(std::string_view word, Index count, std::span<const std::int32_t> byte_order) {
    const auto begin = static_cast<std::uint32_t>(links_.size());
    const auto size = static_cast<std::uint32_t>(word.size());
    for (std::uint32_t i = 0; i < size; ++i)
      links_.push_back({byte_order[static_cast<std::uint8_t>(word[i])],
                        i == 0 ? none : begin + i - 1, i + 1 == size ? none : begin + i + 1,
                        static_cast<std::uint32_t>(counts_.size())});
    counts_.push_back(count);
  }
  void add(Pair pair, std::uint32_t place) {
    Places& places = pairs_[pair];
    places.count += counts_[links_[place].word];
    places.places.push_back(place);
    raised_.push_back(pair);
  }
  void remove(Pair pair, std::uint32_t place) { pairs_[pair].count -= counts_[links_[place].word]; }
  void merge_at(std::uint32_t place, Pair pair, std::int32_t result) {
    Link& left = links_[place];
    if (left.token != pair.left || left.next == none || links_[left.next].token != pair.right)
      return;
    Link& right = links_[left.next];
    const std::uint32_t before = left.previous, after = right.next;
    if (before != none) remove({links_[before].token, pair.left}, place);
    if (after != none) remove({pair.right, links_[after].token}, place);
    left.token = result;
    left.next = after;
    right.token = -1;
    if (after != none) links_[after].previous = place;
    if (before != none) add({links_[before].token, result}, before);
    if (after != none) add({result, links_[after].token}, place);
  }

  std::vector<Link> links_;
  std::vector<Index> counts_;  // by word
  std::unordered_map<Pair, Places, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> raised_;  // since the last merge
};

/// Bytes in the order of their byte-level letters. Among equally frequent pairs the first in this
/// order wins, as in Hugging Face's trainer.
std::vector<std::int32_t> bytes_by_letter() {
  std::vector<std::int32_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), 0);
  std::sort(bytes.begin(), bytes.end(), [](std::int32_t a, std::int32_t b) {
    return letter_of(static_cast<std::uint8_t>(a)) < letter_of(static_cast<std::uint8_t>(b));
  });
  return bytes;
}

}  // namespace

Tokenizer Tokenizer::train(std::span<const std::string> texts, Index vocab_size,
                           const CancelCheck& cancel_check) {
  check(vocab_size >= 258 && vocab_size <= max_vocab_size, "Tokenizer::train: vocab_size is ",
        vocab_size, ", expected 258 (256 bytes, eos, pad) to ", max_vocab_size);
  std::shared_ptr<Impl> impl = byte_impl();
  const IndexedVector<std::int32_t> bytes = bytes_by_letter();
  IndexedVector<std::int32_t> order(256);
  for (std::size_t i = 0; i < 256; ++i) order[bytes[i]] = static_cast<std::int32_t>(i);
  const auto id_of = [&](std::int32_t token) { return token < 256 ? bytes[token] : token; };
  std::unordered_map<std::string, std::int32_t> known;
  Words words(count_words(texts, cancel_check), order, cancel_check);
  while (static_cast<Index>(impl->tokens.size()) < vocab_size - 2) {
    check_cancelled(cancel_check);
    const std::optional<Pair> pair = words.most_frequent();
    if (!pair) break;
    const std::int32_t left = id_of(pair->left), right = id_of(pair->right);
    const std::string joined = impl->tokens[left].bytes + impl->tokens[right].bytes;
    if (joined == eos_name || joined == pad_name) {
      words.drop(*pair);  // text that spells out a special token must not become one
      continue;
    }
    // Two pairs may spell the same token.
    const auto next = static_cast<std::int32_t>(impl->tokens.size());
    const auto [entry, fresh] = known.emplace(joined, next);
    if (fresh) impl->tokens.push_back({joined});
    impl->merges.push_back(
        {left, right, entry->second, static_cast<std::uint32_t>(impl->merges.size())});
    words.merge(*pair, entry->second);
  }
  return finished(std::move(impl));
}

}  // namespace rapt
