#pragma once

#include <optional>

#include "rapt/pattern.h"

namespace rapt {

/// What messages of attend over a cache begin with; explain, which refuses the same calls, has it
/// too.
inline constexpr const char* over_cache = "attend over a cache";

/// Throws std::invalid_argument if the first query stands before all keys and sees none because of
/// that. More queries than tokens are fine where it does not matter where they stand, and for a
/// query that sees something. Elsewhere somebody has asked before he appended, and would get zeros.
void check_standing(const Pattern& pattern, Lengths lengths, std::optional<Index> sequence);

/// Throws std::invalid_argument where a pattern without an lsh leaf meets a cache made for one.
void check_unhashed(bool hashed);

}  // namespace rapt
