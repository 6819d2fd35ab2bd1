#include <algorithm>

#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/experiments/softmax_theory.h"
#include "lab/section_figures.h"

namespace rapt::lab {
using namespace detail;
namespace {

constexpr Index keys = 512;

/// Zeros are drawn here: a logarithmic axis has no 0.
constexpr double least = 1e-12;

/// Lengths of the gradients of queries and keys under standard normal everything.
struct GradientLengths {
  std::vector<double> queries, keys;
};

constexpr Index looking = 1024, value_dim = 64;

GradientLengths gradient_lengths(Index dim, const Scale& scale, const Lab& lab) {
  const Tensor q = normals({1, 1, looking, dim}, lab.seed),
               k = normals({1, 1, keys, dim}, lab.seed + 1);
  const Tensor v = normals({1, 1, keys, value_dim}, lab.seed + 2);
  const Tensor dout = normals({1, 1, looking, value_dim}, lab.seed + 3);
  Attention how;
  how.scale = scale;
  const Attended attended = attend(q.view(), k.view(), v.view(), how, lab.context);
  const Gradients gradients =
      attend_backward(dout.view(), q.view(), k.view(), v.view(), attended, how, lab.context);
  return {row_lengths(gradients.dq), row_lengths(gradients.dk)};
}

/// What happens to queries, or to keys, over d.
struct GradientTables {
  Json measured = Json::array(), theory = Json::array();

  void add(Index dim, const std::string& scale, const std::vector<double>& lengths, double mean) {
    const auto row = [&](const char* measure, double length) {
      return Json{
          {"d", dim}, {"scale", scale}, {"measure", measure}, {"length", std::max(length, least)}};
    };
    measured.push_back(row("median", median(lengths)));
    measured.push_back(row("root mean square", root_mean_square(lengths)));
    theory.push_back(row("root mean square", mean));
  }
  double at(Index dim, const char* measure) const {
    for (const Json& row : measured)
      if (row["d"] == dim && row["scale"] == "none" && row["measure"] == measure)
        return row["length"].get<double>();
    return 0;
  }
  Figure figure(const std::string& y_title) const {
    LineChart chart = measured_and_theory(
        {.field = "d", .title = "dimension of a head, d", .scale = Axis::Scale::log},
        {.field = "length", .title = y_title, .scale = Axis::Scale::log}, "scale");
    chart.facet = "measure";
    Figure made;
    made.data = {{"measured", measured}, {"theory", theory}};
    made.spec = spec_of(chart);
    return made;
  }
};

}  // namespace

std::vector<Figure> gradient_figures(const Lab& lab) {
  GradientTables queries, of_keys;
  const std::vector<Index> dims = {16, 32, 64, 128, 256, 512};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    for (const NamedScale& scale : compared_scales()) {
      const double factor = scale.at(dims[i]);
      const GradientLengths lengths = gradient_lengths(dims[i], scale.scale, lab);
      queries.add(dims[i], scale.name, lengths.queries,
                  query_gradient_theory(keys, dims[i], value_dim, factor));
      of_keys.add(dims[i], scale.name, lengths.keys,
                  key_gradient_theory(keys, looking, dims[i], value_dim, factor));
    }
    lab.progress(static_cast<double>(i + 1) / static_cast<double>(dims.size()));
  }
  Figure of_queries = queries.figure("length of the gradient of a query");
  of_queries.name = "queries";
  of_queries.title =
      "Without a scale the typical query gets less and less gradient as d grows; the mean hides it";
  of_queries.text =
      "The median query first: from d = 64 to 512 its gradient falls " +
      short_text(queries.at(64, "median") / queries.at(512, "median")) +
      "-fold without a scale, stays with 1/√d, and falls as 1/√d with 1/d. The root mean "
      "square rises " +
      short_text(queries.at(512, "root mean square") / queries.at(64, "root mean square")) +
      "-fold: a few rows in which two keys tie get enormous gradients. Judge saturation by the "
      "median, never by the mean. Compare the slopes of the curves, not their heights: without a "
      "scale every gradient is √d times longer to begin with, which an optimizer such as Adam "
      "divides away; what it cannot bring back is a gradient that fades.";
  Figure key_figure = of_keys.figure("length of the gradient of a key");
  key_figure.name = "keys";
  key_figure.title = "Keys live on the few queries that are still alive, and hide saturation too";
  key_figure.text =
      "The same for a key that 1,024 queries look at, whose gradients it adds up. From d = 64 to "
      "512 "
      "the median key changes from " +
      short_text(of_keys.at(64, "median")) + " to " + short_text(of_keys.at(512, "median")) +
      " without a scale, while the median query falls: a handful of queries with a tie outweighs "
      "all "
      "the silent ones.";
  return {of_queries, key_figure};
}

}  // namespace rapt::lab
