#include <set>

#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

const Axis dim_axis{.field = "d", .title = "dimension of a head, d", .scale = Axis::Scale::log};

/// Distinct values of a row's probabilities after rounding to bf16.
Index distinct(const std::vector<double>& row) {
  std::set<float> seen;
  for (const double p : row) seen.insert(static_cast<float>(Bf16(static_cast<float>(p))));
  return std::ssize(seen);
}

/// One row of probabilities by the engine: what it mixes are unit vectors, some at a time.
std::vector<double> probabilities(Index dim, Index count, const Scale& scale, const Lab& lab) {
  constexpr Index at_once = 512;
  const Tensor q = normals({1, 1, 1, dim}, lab.seed + 3),
               k = normals({1, 1, count, dim}, lab.seed + 4);
  Attention how;
  how.scale = scale;
  std::vector<double> row;
  for (Index first = 0; first < count; first += at_once) {
    Tensor v({1, 1, count, at_once});
    for (Index i = 0; i < at_once; ++i) v.data()[(first + i) * at_once + i] = 1;
    const Tensor out = attend(q.view(), k.view(), v.view(), how, lab.context).out;
    row.insert(row.end(), out.data(), out.data() + at_once);
  }
  return row;
}

/// Which part of the gradients of single scores is smaller than the smallest number that f16 has
/// with all its bits, 2^-14. A key's gradient is that of its score times the query.
double part_below_f16(Index dim, const Scale& scale, const Lab& lab) {
  constexpr Index heads = 16, keys = 1024, value_dim = 64;
  const Tensor q = normals({1, heads, 1, dim}, lab.seed + 5),
               k = normals({1, heads, keys, dim}, lab.seed + 6),
               v = normals({1, heads, keys, value_dim}, lab.seed + 7),
               dout = normals({1, heads, 1, value_dim}, lab.seed + 8);
  Attention how;
  how.scale = scale;
  const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
  const Gradients gradients =
      attend_backward(dout.view(), q.view(), k.view(), v.view(), attended, how, lab.context);
  const std::vector<double> of_keys = row_lengths(gradients.dk), of_query = row_lengths(q);
  double count = 0;
  for (std::size_t i = 0; i < of_keys.size(); ++i)
    count += of_keys[i] / of_query[i / keys] < 0x1p-14 ? 1 : 0;
  return count / static_cast<double>(of_keys.size());
}

double value_at(const Json& rows, Index dim, const std::string& scale, const char* field) {
  for (const Json& row : rows)
    if (row["d"] == dim && row["scale"] == scale) return row[field].get<double>();
  return 0;
}

}  // namespace

Figure resolution_figure(const Lab& lab) {
  constexpr Index count = 4096;
  Json rows = Json::array();
  for (const Index dim : {16, 32, 64, 128, 256, 512})
    for (const NamedScale& scale : compared_scales())
      rows.push_back({{"d", dim},
                      {"scale", scale.name},
                      {"values", distinct(probabilities(dim, count, scale.scale, lab))}});
  const auto at = [&](const char* scale) {
    return short_text(value_at(rows, 128, scale, "values"));
  };
  const LineChart chart{.x = dim_axis,
                        .y = {.field = "values",
                              .title = "different values in a row of 4,096",
                              .scale = Axis::Scale::log},
                        .layers = {{.table = "rows", .y = "values", .series = "scale"}}};
  return {"resolution",
          "Divided by d, a row of bf16 probabilities can hardly distinguish its keys",
          "A row over 4,096 keys, its probabilities rounded to bf16 as mixed-precision training "
          "stores them: at d = 128 there are " +
              at("1/d") + " different values left with 1/d and " + at("1/√d") +
              " with 1/√d. bf16 has 8 bits for numbers that are all nearly 1/4096.",
          {{"rows", rows}},
          spec_of(chart)};
}

Figure underflow_figure(const Lab& lab) {
  Json rows = Json::array();
  for (const Index dim : {16, 32, 64, 128, 256, 512})
    for (const NamedScale& scale : compared_scales())
      rows.push_back(
          {{"d", dim}, {"scale", scale.name}, {"part", part_below_f16(dim, scale.scale, lab)}});
  const auto at = [&](const char* scale) {
    return short_text(100 * value_at(rows, 512, scale, "part")) + " %";
  };
  const LineChart chart{
      .x = dim_axis,
      .y = {.field = "part", .title = "part of the gradients below 2⁻¹⁴", .range = {0, 1}},
      .layers = {{.table = "rows", .y = "part", .series = "scale"}}};
  return {"underflow",
          "In f16 the gradients of scores fade away with 1/d, and without a scale too",
          "f16 has no full precision below 2⁻¹⁴ = 0.00006. Over 1,024 keys and at d = 512 the "
          "gradients of " +
              at("1/d") + " of all scores are below it with 1/d, " + at("1/√d") +
              " with 1/√d and " + at("none") +
              " without a scale, for other reasons: 1/d makes all of them small, and without a "
              "scale only the few winning keys have any.",
          {{"rows", rows}},
          spec_of(chart)};
}

}  // namespace rapt::lab
