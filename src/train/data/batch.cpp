#include "train/data/batch.h"

#include <algorithm>

#include "base/check.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

double fraction(Index part, Index whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Index Batch::counted() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t >= 0; });
}

void Accuracy::add(const Batch& batch, std::span<const std::int32_t> predictions) {
  check(predictions.size() == batch.targets.size(), "Accuracy::add: ", predictions.size(),
        " predictions, expected ", batch.targets.size());
  for (Index item = 0; item < batch.items; ++item) {
    Index counted = 0, hits = 0;
    for (Index token = 0; token < batch.tokens; ++token) {
      const auto place = to_size(item * batch.tokens + token);
      counted += batch.targets[place] >= 0;
      hits += batch.targets[place] >= 0 && batch.targets[place] == predictions[place];
    }
    targets += counted;
    right += hits;
    items += counted > 0;
    exact += counted > 0 && counted == hits;
  }
}

double Accuracy::of_targets() const { return fraction(right, targets); }
double Accuracy::of_items() const { return fraction(exact, items); }

}  // namespace rapt::detail
