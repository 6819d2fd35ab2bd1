#pragma once

#include <span>

#include "attention/request.h"

namespace rapt::detail {

// What every route may rely on. Each function throws std::invalid_argument, and names what was
// given and what was expected.

/// What messages of attend over a cache begin with; explain, which refuses the same calls, has it
/// too.
inline constexpr const char* over_cache = "attend over a cache";
inline constexpr const char* over_hashed_cache = "attend over a hashed cache";

/// Everything that can be known before the pattern is planned.
void validate(const Request& request);

/// Only that operands fit each other and the score fits them, whatever the pattern is.
void validate_operands(const char* where, const AnyView& q, const AnyView& k, const AnyView& v,
                       const Attention& how);

/// Only that the score has no part that hashed attention does not know.
void check_lsh_score(const char* where, const Attention& how);

/// Only what is special to a cache: its lsh leaf, and no query before all keys that sees none
/// because of that. More queries than tokens are fine where their positions do not matter, and for
/// a query that sees something. Elsewhere the caller asked before appending, and would get zeros.
void validate_cached(const Request& request);

/// That there is a sequence for each item, and a context that the cache was laid out for.
void validate_batch(const AnyView& q, std::span<const KvCache::Sequence> sequences);

}  // namespace rapt::detail
