#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rapt/attention.h"

namespace rapt {

/// Reformer's attention: tokens are hashed, sorted by their bucket and cut into chunks; a chunk
/// sees itself and its neighbours in that order, once for each round of hashing. What it lets a
/// query see depends on the vectors, so a pattern with it has no plan before attend sees them.
struct Lsh {
  enum class Keys { shared, separate };
  enum class Duplicates { keep, once };

  Index chunk = 64;  // tokens; shorter inputs are not hashed at all
  Index rounds = 1;
  /// Even factors, whose product is the number of buckets; empty: chosen from the length, as
  /// Transformers does for a model of that length.
  std::vector<Index> buckets = {};
  /// Seed of torch's generator, which draws the rotations; Attention::rotations gives others.
  std::uint64_t seed = 0;
  Index before = 1, after = 0;  // neighbouring chunks that a chunk sees
  /// shared: k are the vectors of q once more (nothing checks it). They are hashed once, keys are
  /// divided by their root mean square, and a token sees itself, whatever other patterns say, but
  /// only if it sees nothing else.
  /// separate: q and k are hashed and sorted each for itself.
  Keys keys = Keys::shared;
  /// How often a key counts that a query sees in several rounds: each time, or once, which costs
  /// time that grows with the square of the rounds.
  Duplicates duplicates = Duplicates::keep;

  bool operator==(const Lsh&) const = default;
};
template <>
inline constexpr EnumNames enum_names<Lsh::Keys>{"keys of lsh", "shared, separate"};
template <>
inline constexpr EnumNames enum_names<Lsh::Duplicates>{"duplicates of lsh", "keep, once"};

/// May be alone or under & with any other pattern, which then restricts what the buckets allow. A
/// key that no query may see counts as padding and is sorted to the end.
///
/// Text: lsh(chunk, rounds, {buckets}, seed, before, after, separate, once); whatever follows the
/// chunk may be left out from the end.
RAPT_API Pattern lsh(const Lsh& options);

/// The lsh leaf of a pattern, if it has one. Throws std::invalid_argument if it is where it may
/// not.
RAPT_API std::optional<Lsh> lsh_part(const Pattern& pattern);

/// Reformer's hashed attention of tokens that are queries and keys at once: attend(qk, qk, v) with
/// the pattern `how.pattern & lsh(options)`, which the call's attend_backward takes, too.
/// qk [batch, heads, tokens, dim]; v [batch, heads, tokens, value_dim]. Throws
/// std::invalid_argument if options.keys is not shared.
RAPT_API Attended attend_lsh(AnyView qk, AnyView v, const Lsh& options, const Attention& how = {},
                             const Context& context = {});

/// Pairs of positions that one head multiplies at this length, including pairs that another pattern
/// hides.
RAPT_API Index lsh_pairs(const Lsh& options, Index tokens);

/// The factors that replace empty `buckets` at this length.
RAPT_API std::vector<Index> lsh_buckets(Index tokens, Index chunk);

}  // namespace rapt
