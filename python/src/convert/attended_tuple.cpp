#include "python/src/convert/attended_tuple.h"
#include "python/src/convert/errors.h"

namespace rapt::python {
namespace {

nb::tuple stats_of(const ResultArray& answer, Stats stats) {
  return nb::make_tuple(
      answer.array(std::move(stats.entropy)), answer.array(std::move(stats.largest)),
      answer.array(std::move(stats.logit_variance)), answer.array(std::move(stats.jacobian_norm)),
      answer.array(std::move(stats.reach)), answer.array(std::move(stats.sink_mass)));
}

}  // namespace

nb::object attended_tuple(const ResultArray& answer, nb::object out, Attended attended, int wanted,
                          Layout layout) {
  if (wanted == 0) return out;
  const Shape shape = attended.lse.shape();
  nb::list all;
  all.append(out);
  if ((wanted & want_lse) != 0) all.append(answer.array(std::move(attended.lse)));
  if ((wanted & want_stats) != 0) all.append(stats_of(answer, std::move(*attended.stats)));
  if ((wanted & want_rows) != 0)
    all.append(with_unrounded(answer,
                              nb::make_tuple(answer.array(std::move(attended.rows.max), shape),
                                             answer.array(std::move(attended.rows.sum), shape)),
                              attended.rows, layout));
  return nb::tuple(all);
}

Rows rows_of(nb::tuple arrays, const char* where) {
  if (arrays.size() != 2)
    wrong_value(where, ": rows has ", arrays.size(), " parts, expected (max, sum)");
  Rows rows;
  rows.max = Array(arrays[0], "rows[0]").to_floats();
  rows.sum = Array(arrays[1], "rows[1]").to_doubles();
  return rows;
}

nb::tuple with_unrounded(const ResultArray& answer, nb::tuple arrays, const Rows& rows,
                         Layout layout) {
  if (rows.out == nullptr) return arrays;
  return nb::tuple(arrays + nb::make_tuple(answer.array(rows.out, layout)));
}

}  // namespace rapt::python
