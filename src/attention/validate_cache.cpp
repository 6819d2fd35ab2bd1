#include "attention/validate.h"

#include <stdexcept>
#include <vector>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/views.h"

namespace rapt::detail {
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
bool blind_for_position(const Pattern& given, Lengths lengths) {
  const bool empty = lengths.keys == 0;
  if (empty) lengths = {lengths.queries + 1, 1};  // as if it had one token
  const Pattern pattern = among(given, lengths.keys);
  if (!empty) {
    pattern.check(lengths);
  } else if (!fits(pattern, lengths)) {  // masks and documents without keys
    return false;
  }
  std::vector<Ranges> scratch = scratch_for(*node_of(pattern));
  Ranges seen;
  const auto sees = [&](Index position) {
    node_of(pattern)->keys_of({0, position, lengths.keys}, scratch, seen);
    return !seen.empty();
  };
  if (sees(lengths.position(0))) return false;
  for (Index position = 0; position < lengths.keys; ++position)
    if (sees(position)) return true;
  return false;
}

void check_positions(const Request& r) {
  const Lengths lengths{r.queries(), r.keys()};
  if (lengths.queries <= lengths.keys || !blind_for_position(r.how.pattern, lengths)) return;
  const std::optional<KvCache::Sequence> sequence = r.cached->number;
  fail(r.where, ": q has ", lengths.queries, " tokens and ",
       sequence ? "sequence " + std::to_string(*sequence) : "a sequence", " has ", lengths.keys,
       ", so that the first query stands before all keys and sees none; expected its own key and "
       "value to be appended before");
}

void validate_hashed(const Request& r) {
  const CacheOptions& options = r.cached->options;
  const Attention& how = r.how;
  const SplitPattern split = split_lsh(how.pattern);
  check(options.lsh.has_value(), r.where,
        ": the pattern has an lsh leaf but the cache was made without one, expected "
        "CacheOptions::lsh");
  check(*split.lsh == options.lsh->lsh, r.where, ": the pattern has ", to_string(lsh(*split.lsh)),
        " but the cache was made for ", to_string(lsh(options.lsh->lsh)),
        ", expected the same in CacheOptions::lsh");
  check(!how.rotations, r.where, ": rotations are given, expected them in CacheOptions::lsh");
  check(how.order == nullptr, r.where, ": an order of tokens is given, expected the cache's own");
  check(how.dropout.rate == 0, r.where, ": dropout of ", how.dropout.rate, " given, expected none");
  check_lsh_score(r.where, how);
  check(r.q.heads() == options.kv_heads && r.q.dim() == options.dim, r.where, ": q has ",
        r.q.heads(), " heads of dim ", r.q.dim(), ", expected ", options.kv_heads, " of ",
        options.dim, " as the cache has");
  const std::string name = r.cached->number ? "sequence " + std::to_string(*r.cached->number)
                                            : std::string("a sequence");
  check(r.queries() <= r.keys(), r.where, ": ", r.queries(), " queries over ", name, " of ",
        r.keys(), " tokens, expected no more queries than tokens, which they are");
  split.rest.check({r.queries(), r.keys()});
}

}  // namespace

void validate_cached(const Request& r) {
  if (node_of(r.how.pattern)->has_lsh()) return validate_hashed(r);
  check(!r.cached->options.lsh, r.where,
        ": the cache was made for an lsh leaf but the pattern has none, expected that of "
        "CacheOptions::lsh");
  check_positions(r);
}

void validate_batch(const AnyView& q, std::span<const KvCache::Sequence> sequences) {
  check_readable(over_cache, "q", q);
  check(q.batch() == static_cast<Index>(sequences.size()), over_cache, ": q has batch ", q.batch(),
        " but ", sequences.size(), " sequences are given, expected one for each item");
}

}  // namespace rapt::detail
