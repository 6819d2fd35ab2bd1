#pragma once

#include <optional>
#include <span>
#include <string>

#include "attention/dispatch.h"

namespace rapt::detail {

// One query over at most 64 keys whose score is a product alone: no plan, no tiles, no memory but
// that of the results. A short call takes less time than making those would.

/// The short context of a request whose score is a product alone; nothing if it has too many keys.
std::optional<ShortContext> short_context(const Request& request);
/// Why a request has no short context.
const char* no_short_context(const Request& request);

void run_short_context(std::span<const Job> jobs);
std::string describe_short_context(const Request& request);

}  // namespace rapt::detail
