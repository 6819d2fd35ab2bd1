#include "cli/console/suggestion.h"

#include <algorithm>
#include <numeric>

namespace rapt::cli {
namespace {

/// Levenshtein distance.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t distance = std::min<std::size_t>(3, word.size() / 2 + 1);  // beyond, it is a guess
  for (const std::string& each : known) {
    const std::size_t here = edits(word, each);
    if (here >= distance) continue;
    distance = here;
    best = each;
  }
  return best;
}

}  // namespace rapt::cli
