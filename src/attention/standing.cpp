#include "attention/standing.h"

#include <stdexcept>
#include <vector>

#include "attention/pattern_node.h"
#include "base/check.h"

namespace rapt {
namespace {

bool fits(const Pattern& pattern, Lengths lengths) {
  try {
    pattern.check(lengths);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

/// Whether the first query sees nothing before all keys, and would see something elsewhere.
bool blind_for_standing(const Pattern& given, Lengths lengths) {
  const bool empty = lengths.keys == 0;
  if (empty) lengths = {lengths.queries + 1, 1};  // as if it had one token
  const Pattern pattern = among(given, lengths.keys);
  if (!empty) {
    pattern.check(lengths);
  } else if (!fits(pattern, lengths)) {  // masks and documents without keys
    return false;
  }
  std::vector<Ranges> scratch = scratch_for(*pattern.node());
  Ranges seen;
  const auto sees = [&](Index position) {
    pattern.node()->keys_of({0, position, lengths.keys}, scratch, seen);
    return !seen.empty();
  };
  if (sees(lengths.position(0))) return false;
  for (Index position = 0; position < lengths.keys; ++position)
    if (sees(position)) return true;
  return false;
}

}  // namespace

void check_standing(const Pattern& pattern, Lengths lengths, std::optional<Index> sequence) {
  if (lengths.queries <= lengths.keys || !blind_for_standing(pattern, lengths)) return;
  fail(over_cache, ": q has ", lengths.queries, " tokens and ",
       sequence ? "sequence " + std::to_string(*sequence) : "a sequence", " has ", lengths.keys,
       ", so that the first query stands before all keys and sees none; expected its own key and "
       "value to be appended before");
}

void check_unhashed(bool hashed) {
  check(!hashed, over_cache,
        ": the cache was made for an lsh leaf but the pattern has none, expected that of "
        "CacheOptions::lsh");
}

}  // namespace rapt
