#include "train/data/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/io/check_input.h"
#include "train/data/text_files.h"

namespace rapt::detail {

Corpus::Corpus(const std::string& path, const Tokenizer& tokenizer, const CancelCheck& cancel_check)
    : narrow_(tokenizer.vocab_size() <= 0x10000), end_(tokenizer.eos()) {
  Hasher hasher;
  for (const std::string& file : files_of(path)) {
    read(file, tokenizer, hasher, cancel_check);
    ++files_;
  }
  if (end_ && size_ > 0) append({{*end_}});
  hasher.add(std::as_bytes(std::span(documents_)));
  fingerprint_ = hasher.hash().low;
}

void Corpus::read(const std::string& path, const Tokenizer& tokenizer, Hasher& hasher,
                  const CancelCheck& cancel_check) {
  bool opened = false;
  const auto take = [&](std::string_view piece) {
    const std::vector<std::int32_t> tokens =
        tokenizer.encode(piece, {.add_special_tokens = false}).ids;
    if (tokens.empty()) return;
    const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
    check_input(*least >= 0 && *most < tokenizer.vocab_size(), "data: the tokenizer gave ", *least,
                " to ", *most, " for ", path, ", expected 0 to ", tokenizer.vocab_size() - 1);
    if (!std::exchange(opened, true)) {
      documents_.push_back(size_);
      if (end_) append({{*end_}});
    }
    append(tokens);
    hasher.add(std::as_bytes(std::span(tokens)));
  };
  read_pieces(path, take, cancel_check);
}

void Corpus::append(std::span<const std::int32_t> tokens) {
  if (narrow_)
    short_tokens_.insert(short_tokens_.end(), tokens.begin(), tokens.end());
  else
    long_tokens_.insert(long_tokens_.end(), tokens.begin(), tokens.end());
  size_ += static_cast<Index>(tokens.size());
}

std::vector<Index> Corpus::parts(Index first, Index count) const {
  std::vector<Index> lengths;
  Index begin = first;
  auto next = std::upper_bound(documents_.begin(), documents_.end(), first);
  for (; next != documents_.end() && *next < first + count; ++next) {
    lengths.push_back(*next - begin);
    begin = *next;
  }
  lengths.push_back(first + count - begin);
  return lengths;
}

Index split_place(const Corpus& corpus, double held_out) {
  const auto kept = static_cast<Index>(held_out * static_cast<double>(corpus.tokens()));
  const Index want = corpus.tokens() - kept;
  const auto documents = corpus.documents();
  const auto above = std::lower_bound(documents.begin(), documents.end(), want);
  Index best = want, distance = kept / 2 + 1;
  for (const auto& each : {above, above == documents.begin() ? documents.end() : above - 1})
    if (each != documents.end() && *each > 0 && std::abs(*each - want) < distance) {
      best = *each;
      distance = std::abs(*each - want);
    }
  return best;
}

}  // namespace rapt::detail
