#pragma once

#include "python/src/answer.h"
#include "rapt/attention.h"

namespace rapt::python {

/// What a caller wants besides the output.
enum Want { want_lse = 1, want_stats = 2, want_rows = 4 };

/// The output alone, or a tuple (out, lse, stats, rows) of what is wanted; stats is a tuple of six
/// arrays, rows is (max, sum).
nb::object parts(const Answer& answer, nb::object out, Attended attended, int wanted);

/// From (max, sum) as `parts` gave them.
Rows rows_of(nb::tuple arrays, const char* where);

}  // namespace rapt::python
