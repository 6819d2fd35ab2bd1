#include "train/corpus.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/input.h"
#include "base/random.h"
#include "train/text_files.h"

namespace rapt {

Corpus::Corpus(const std::string& path, const Tokenizer& tokenizer)
    : narrow_(tokenizer.entries() <= 0x10000), end_(tokenizer.end()) {
  for (const std::string& file : files_of(path)) {
    read(file, tokenizer);
    ++files_;
  }
  if (end_ && size_ > 0) append(*end_);
}

void Corpus::read(const std::string& path, const Tokenizer& tokenizer) {
  bool opened = false;
  read_pieces(path, [&](std::string_view piece) {
    const std::vector<std::int32_t> tokens = tokenizer.encode(piece);
    if (tokens.empty()) return;
    if (!std::exchange(opened, true)) open_document();
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= tokenizer.entries())
        fail_input("data: the tokenizer gave ", token, " for ", path, ", expected 0 to ",
                   tokenizer.entries() - 1);
      append(token);
    }
  });
}

void Corpus::open_document() {
  documents_.push_back(size_);
  fingerprint_ = scrambled(~fingerprint_);
  if (end_) append(*end_);
}

void Corpus::append(std::int32_t token) {
  fingerprint_ = scrambled(fingerprint_ ^ static_cast<std::uint64_t>(token));
  if (narrow_)
    short_tokens_.push_back(static_cast<std::uint16_t>(token));
  else
    long_tokens_.push_back(token);
  ++size_;
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

}  // namespace rapt
