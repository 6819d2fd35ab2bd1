#pragma once

#include <span>
#include <string>

#include "attention/dispatch.h"

namespace rapt::detail {

/// Patterns with an lsh leaf: tokens are sorted by their hashes, and chunks of queries meet chunks
/// of keys.
void run_lsh(std::span<const Job> jobs);
/// The same over operands.
void run_lsh(const Request& request, const ForwardOutput& output);
std::string describe_lsh(const Request& request);

void run_lsh_backward(const GradientViews& to, AnyView dout, const Request& request, AnyView out,
                      const Rows& rows);

}  // namespace rapt::detail
