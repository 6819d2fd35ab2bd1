#pragma once

#include <span>
#include <string>

#include "attention/dispatch.h"

namespace rapt::detail {

/// Queries of a head that one task looks up. No more of them are ever treated as a prompt.
inline constexpr Index lsh_query_block = 16;

/// Over a hashed cache: for each query its neighbours are looked up in the order that the cache
/// keeps, so the cost of a token does not depend on how many were cached before it.
void run_lsh_decode(std::span<const Job> jobs);
std::string describe_lsh_decode(const Request& request);

/// Over a hashed cache whose tokens are all queries, as over operands: many times faster than each
/// query separately.
void run_lsh_prompt(const Job& job);

}  // namespace rapt::detail
