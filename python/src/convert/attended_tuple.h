#pragma once

#include "python/src/convert/result_array.h"
#include "rapt/attention.h"

namespace rapt::python {

/// What a caller wants besides the output.
enum Want { want_lse = 1, want_stats = 2, want_rows = 4 };

/// The output alone, or a tuple (out, lse, stats, rows) of what is wanted; stats is a tuple of six
/// arrays, rows is (max, sum), and (max, sum, out) with the unrounded output if `out` has 16 bits.
nb::object attended_tuple(const ResultArray& answer, nb::object out, Attended attended, int wanted,
                          Layout layout = Layout::bhld);

/// From (max, sum). rapt.Attended picks the output that goes with them.
Rows rows_of(nb::tuple arrays, const char* where);

/// The arrays, and the unrounded output after them if there is one.
nb::tuple with_unrounded(const ResultArray& answer, nb::tuple arrays, const Rows& rows,
                         Layout layout);

}  // namespace rapt::python
