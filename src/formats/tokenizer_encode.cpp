#include <algorithm>
#include <queue>

#include "base/check.h"
#include "formats/tokenizer_body.h"

namespace rapt {
namespace {

/// Merges the tokens of one word until no pair is left that becomes one: always the pair of lowest
/// rank, from left to right. A list of tokens and a heap of pairs, so a long word costs n log n.
class WordMerger {
 public:
  explicit WordMerger(const Tokenizer::Body& body) : body_(body) {}

  void append(std::string_view word, std::vector<std::int32_t>& ids) {
    check(word.size() < none, "tokenizer: a word of ", word.size(), " bytes is too long");
    start(word);
    while (!candidates_.empty()) {
      const Candidate next = candidates_.top();
      candidates_.pop();
      merge(next);
    }
    for (std::uint32_t at = 0; at != none; at = links_[at].next) ids.push_back(links_[at].id);
  }

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  struct Link {
    std::int32_t id;  // -1: has gone into the one before it
    std::uint32_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank, place;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, place) > std::pair(other.rank, other.place);
    }
  };

  void start(std::string_view word) {
    const auto size = static_cast<std::uint32_t>(word.size());
    links_.resize(size);
    for (std::uint32_t i = 0; i < size; ++i)
      links_[i] = {body_.byte_ids[static_cast<std::uint8_t>(word[i])], i == 0 ? none : i - 1,
                   i + 1 == size ? none : i + 1};
    for (std::uint32_t i = 0; i < size; ++i) consider(i);
  }
  void consider(std::uint32_t place) {
    const Link& link = links_[place];
    if (link.next == none) return;
    const std::int64_t rank = body_.rank_of(link.id, links_[link.next].id);
    if (rank >= 0) candidates_.push({static_cast<std::uint32_t>(rank), place});
  }
  void merge(Candidate candidate) {
    const Merge& merge = body_.merges[candidate.rank];
    Link& left = links_[candidate.place];
    // A candidate of the past: one of the two has been merged otherwise.
    if (left.id != merge.left || left.next == none || links_[left.next].id != merge.right) return;
    Link& right = links_[left.next];
    left.id = merge.result;
    left.next = right.next;
    right.id = -1;
    if (left.next != none) links_[left.next].previous = candidate.place;
    consider(candidate.place);
    if (left.previous != none) consider(left.previous);
  }

  const Tokenizer::Body& body_;
  std::vector<Link> links_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates_;
};

/// One call of encode: words come back again and again, so their tokens are kept.
class Encoding {
 public:
  explicit Encoding(const Tokenizer::Body& body) : body_(body), merger_(body) {}

  void add_text(std::string_view text) {
    if (body_.merges.empty() && !body_.whole_words) {
      for (const char byte : text) ids_.push_back(body_.byte_ids[static_cast<std::uint8_t>(byte)]);
      return;
    }
    body_.cutter.for_each_word(text, [&](std::string_view word) { add_word(word); });
  }
  void add(std::int32_t id) { ids_.push_back(id); }
  std::vector<std::int32_t> result() { return std::move(ids_); }

 private:
  static constexpr std::size_t longest_kept = 64;
  static constexpr std::size_t most_kept = 1 << 18;
  struct Place {
    std::size_t begin, end;
  };

  void add_word(std::string_view word) {
    if (body_.whole_words) {
      const auto whole = body_.ids.find(word);
      if (whole != body_.ids.end() && piece(whole->second)) return ids_.push_back(whole->second);
    }
    const auto known = kept_.find(word);
    if (known != kept_.end()) {
      // By index: the vector may move while it grows.
      for (std::size_t i = known->second.begin; i < known->second.end; ++i) ids_.push_back(ids_[i]);
      return;
    }
    const std::size_t begin = ids_.size();
    merger_.append(word, ids_);
    if (word.size() <= longest_kept && kept_.size() < most_kept)
      kept_.emplace(word, Place{begin, ids_.size()});
  }
  bool piece(std::int32_t id) const {
    return body_.tokens[static_cast<std::size_t>(id)].kind == TokenKind::piece;
  }

  const Tokenizer::Body& body_;
  WordMerger merger_;
  std::vector<std::int32_t> ids_;
  std::unordered_map<std::string_view, Place> kept_;
};

/// The longest added word that begins the text; -1 if none does.
std::int32_t added_word(const Tokenizer::Body& body, std::string_view text) {
  if (!body.added_begins[static_cast<std::uint8_t>(text[0])]) return -1;
  for (const std::size_t length : body.added_lengths) {
    if (length > text.size()) continue;
    const auto found = body.ids.find(text.substr(0, length));
    if (found == body.ids.end()) continue;
    const auto& token = body.tokens[static_cast<std::size_t>(found->second)];
    if (token.kind == TokenKind::added) return found->second;
  }
  return -1;
}

}  // namespace

std::vector<std::int32_t> Tokenizer::Body::encode(std::string_view text) const {
  Encoding encoding(*this);
  if (added_lengths.empty()) {
    encoding.add_text(text);
    return encoding.result();
  }
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::int32_t id = added_word(*this, text.substr(at));
    if (id < 0) {
      ++at;
      continue;
    }
    encoding.add_text(text.substr(begin, at - begin));
    encoding.add(id);
    at += tokens[static_cast<std::size_t>(id)].bytes.size();
    begin = at;
  }
  encoding.add_text(text.substr(begin));
  return encoding.result();
}

}  // namespace rapt
