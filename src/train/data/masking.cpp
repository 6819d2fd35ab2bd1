#include "train/data/masking.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace rapt::detail {

Masking::Masking(const Tokenizer& tokenizer, double rate)
    : vocab_size_(tokenizer.vocab_size()), threshold_(static_cast<std::uint64_t>(rate * 0x1p32)) {
  const std::optional<std::int32_t> classic = tokenizer.token_to_id("[MASK]"),
                                    other = tokenizer.token_to_id("<mask>");
  if (!classic && !other) ++vocab_size_;
  mask_ = classic ? *classic : other ? *other : static_cast<std::int32_t>(vocab_size_ - 1);
  special_.push_back(mask_);
  for (const auto& id : {tokenizer.eos(), tokenizer.pad()})
    if (id) special_.push_back(*id);
  const auto different = static_cast<Index>(special_.size());
  check(vocab_size_ > different + 1, "data: a tokenizer of ", tokenizer.vocab_size(),
        " tokens leaves nothing to mask");
}

bool Masking::special(std::int32_t token) const {
  return std::find(special_.begin(), special_.end(), token) != special_.end();
}

std::int32_t Masking::hidden(std::int32_t token, std::uint64_t bits) const {
  RandomStream random(bits);
  const Index choice = random.below(10);
  if (choice < 8) return mask_;
  if (choice == 8) return token;
  std::int32_t other = 0;
  do other = static_cast<std::int32_t>(random.below(vocab_size_));
  while (special(other));
  return other;
}

void Masking::apply(std::span<std::int32_t> inputs, std::span<std::int32_t> targets,
                    std::uint64_t bits) const {
  std::size_t last_resort = inputs.size();
  std::uint64_t lowest = ~std::uint64_t{0};
  bool any = false;
  for (std::size_t place = 0; place < inputs.size(); ++place) {
    if (special(inputs[place])) continue;
    const std::uint64_t own = random_bits(bits, {static_cast<Index>(place)});
    if (own < lowest) {
      lowest = own;
      last_resort = place;
    }
    if (own >> 32 >= threshold_) continue;
    any = true;
    targets[place] = inputs[place];
    inputs[place] = hidden(inputs[place], own);
  }
  if (any || last_resort == inputs.size()) return;
  targets[last_resort] = inputs[last_resort];
  inputs[last_resort] = hidden(inputs[last_resort], lowest);
}

}  // namespace rapt::detail
