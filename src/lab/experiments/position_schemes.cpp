#include <cmath>

#include "base/indexed_vector.h"
#include "lab/charts/chart.h"
#include "lab/experiments/numbers.h"
#include "lab/lab.h"
#include "rapt/positions.h"
#include "rapt/rope.h"

namespace rapt::lab {
using namespace detail;
namespace {

/// Values of channels over positions, from -limit to limit.
HeatMap channel_map(double limit) {
  return {.table = "cells",
          .x = {.field = "position", .title = "position", .scale = Axis::Scale::band},
          .y = {.field = "channel", .title = "channel", .scale = Axis::Scale::band},
          .value = "value",
          .title = "value",
          .diverging = true,
          .range = {-limit, limit}};
}

Figure sinusoid_figure() {
  constexpr Index positions = 96, dim = 64;
  const Tensor rows = sinusoidal({.dim = dim, .layout = Sinusoidal::Layout::halves}, 0, positions);
  Json cells = Json::array();
  for (Index p = 0; p < positions; ++p)
    for (Index c = 0; c < dim; ++c)
      cells.push_back({{"position", p}, {"channel", c}, {"value", rows.data()[p * dim + c]}});
  return {
      "sinusoids",
      "Sinusoidal positions are clocks of many speeds",
      "The first half of the channels are sines, the second half cosines, from fast to slow. Fast "
      "ones tell neighbours apart, slow ones tell the beginning from the end. They are added to "
      "the input.",
      {{"cells", cells}},
      spec_of(channel_map(1))};
}

Figure rotation_figure(const Lab& lab) {
  constexpr Index dim = 8, positions = 64;
  const Rope rope(RopeOptions{.dim = dim});
  Json rows = Json::array();
  Tensor x({1, 1, positions, dim});
  for (Index p = 0; p < positions; ++p)
    for (Index c = 0; c < dim / 2; ++c) x.data()[p * dim + c] = 1;
  rope.apply(x.view(), {}, lab.context);
  for (Index p = 0; p < positions; ++p)
    for (Index pair = 0; pair < dim / 2; ++pair)
      rows.push_back({{"position", p},
                      {"pair", "pair " + std::to_string(pair)},
                      {"x", x.data()[p * dim + pair]},
                      {"y", x.data()[p * dim + pair + dim / 2]}});
  const PlaneChart chart{
      .table = "rows",
      .x = {.field = "x", .title = "first channel of the pair", .range = {-1, 1}},
      .y = {.field = "y", .title = "second channel", .range = {-1, 1}},
      .series = "pair",
      .sliders = {{.field = "position", .title = "position", .start = 3}}};
  return {
      "rope",
      "RoPE turns pairs of channels, each pair at its own speed",
      "Four pairs of a head of d = 8, each started at (1, 0). Queries and keys are turned alike, "
      "so "
      "their product knows only by how much they were turned against one another: the distance of "
      "their tokens.",
      {{"rows", rows}},
      spec_of(chart)};
}

/// q·k of equal vectors at two places, over the distance.
Figure decay_figure(const Lab& lab) {
  constexpr Index dim = 64, far = 512;
  Json rows = Json::array();
  for (const double base : {100.0, 10000.0, 1000000.0}) {
    const Rope rope(RopeOptions{.dim = dim, .base = base});
    Tensor x({1, 1, far, dim});
    for (Index i = 0; i < x.elements(); ++i) x.data()[i] = 1;
    rope.apply(x.view(), {}, lab.context);
    for (Index t = 0; t < far; t += 2) {
      double product = 0;
      for (Index c = 0; c < dim; ++c)
        product += static_cast<double>(x.data()[c]) * static_cast<double>(x.data()[t * dim + c]);
      rows.push_back(
          {{"base", "base " + short_text(base)}, {"distance", t}, {"product", product / dim}});
    }
  }
  const LineChart chart{.x = {.field = "distance", .title = "distance"},
                        .y = {.field = "product", .title = "q·k, relative"},
                        .layers = {{.table = "rows", .y = "product", .series = "base"}}};
  return {"rope-distance",
          "A larger base lets RoPE see farther before it loses its hold",
          "The product of two equal vectors after turning, against the distance of their tokens. "
          "It falls "
          "and wavers; with a larger base the fall begins later, which is why long-context models "
          "raise "
          "the base.",
          {{"rows", rows}},
          spec_of(chart)};
}

Figure alibi_figure() {
  constexpr Index heads = 8;
  const Bias bias = alibi(heads);
  Json rows = Json::array();
  for (Index h = 0; h < heads; ++h)
    for (Index distance = 0; distance <= 64; distance += 4)
      rows.push_back({{"head", "head " + std::to_string(h + 1)},
                      {"distance", distance},
                      {"bias", -static_cast<double>(element(bias.alibi->slopes, h)) *
                                   static_cast<double>(distance)}});
  const LineChart chart{.x = {.field = "distance", .title = "distance"},
                        .y = {.field = "bias", .title = "added to the score", .range = {-16, 0}},
                        .layers = {{.table = "rows", .y = "bias", .series = "head"}}};
  return {"alibi",
          "ALiBi tells each head how far it may look",
          "Eight heads: the slope of the first is ½, and each next one is half of the one before. "
          "A steep "
          "head sees a few neighbours, a flat one nearly everything. Nothing is learned, and any "
          "distance "
          "has a value.",
          {{"rows", rows}},
          spec_of(chart)};
}

Figure t5_figure() {
  Json rows = Json::array();
  for (Index distance = 0; distance <= 160; ++distance)
    for (const bool both : {true, false})
      rows.push_back({{"kind", both ? "encoder (half of 32)" : "decoder (32)"},
                      {"distance", distance},
                      {"bucket", t5_bucket(-distance, 32, 128,
                                           both ? RelativeTable::Direction::both
                                                : RelativeTable::Direction::past)}});
  const LineChart chart{.x = {.field = "distance", .title = "tokens back"},
                        .y = {.field = "bucket", .title = "bucket"},
                        .layers = {{.table = "rows", .y = "bucket", .series = "kind"}}};
  return {"t5",
          "T5 learns one number for each of 32 distances, coarser the farther away",
          "Near distances have a bucket each, farther ones share it in steps that grow, and beyond "
          "128 all "
          "are one. So the bias extrapolates, but far tokens cannot be distinguished.",
          {{"rows", rows}},
          spec_of(chart)};
}

Figure axial_figure(const Lab& lab) {
  constexpr Index rows = 6, columns = 8, row_dim = 4, column_dim = 8;
  const Tensor of_rows = normals({rows, row_dim}, lab.seed + 7),
               of_columns = normals({columns, column_dim}, lab.seed + 8);
  const Axial axial{of_rows.view(), of_columns.view()};
  const Tensor made = axial_positions(axial, {1, axial.positions()});
  Json cells = Json::array();
  for (Index p = 0; p < axial.positions(); ++p)
    for (Index c = 0; c < axial.dim(); ++c)
      cells.push_back({{"position", p},
                       {"channel", c},
                       {"row", p / columns},
                       {"column", p % columns},
                       {"value", made.data()[p * axial.dim() + c]}});
  return {"axial",
          "Axial positions put a place together from its row and its column",
          "48 positions as a grid of 6 rows and 8 columns. The first 4 channels are the row's and "
          "change every 8 positions, the other 8 are the column's and come again with that period. "
          "No two positions are alike, though there are only 6 + 8 vectors to learn.",
          {{"cells", cells}},
          spec_of(channel_map(2))};
}

/// The numbers of a learned table and of an axial one for a square grid.
Figure axial_size_figure() {
  constexpr Index width = 1024;
  Json rows = Json::array();
  double learned = 0, axial = 0;
  for (Index side = 32; side <= 512; side *= 2) {
    const Index tokens = side * side;
    learned = static_cast<double>(tokens * width);
    axial = static_cast<double>(side * (width / 4) + side * (width - width / 4));
    rows.push_back({{"kind", "learned"}, {"tokens", tokens}, {"parameters", learned}});
    rows.push_back({{"kind", "axial"}, {"tokens", tokens}, {"parameters", axial}});
  }
  const LineChart chart{
      .x = {.field = "tokens", .title = "tokens", .scale = Axis::Scale::log},
      .y = {.field = "parameters", .title = "numbers to learn", .scale = Axis::Scale::log},
      .layers = {{.table = "rows", .y = "parameters", .series = "kind"}}};
  return {"axial-size",
          "An axial table grows with the square root of the length",
          "Width 1,024, a square grid, a quarter of the channels from the row. At 262,144 tokens a "
          "learned table has " +
              short_text(learned / 1e6) + " million numbers, the axial one " +
              short_text(axial / 1e6) + " million: " + short_text(learned / axial) +
              " times fewer.",
          {{"rows", rows}},
          spec_of(chart)};
}

}  // namespace

Section position_schemes(const Lab& lab) {
  Section section{
      .name = "positions",
      .title = "How does attention know where a token is?",
      .text =
          "Attention itself sees a set, not a sequence. <b>Positions enter in three ways</b>: "
          "added to the input (sinusoidal, learned, axial), by turning queries and keys "
          "(RoPE), or as a number added to the score (ALiBi, T5)."};
  section.figures = {sinusoid_figure(), rotation_figure(lab), decay_figure(lab),  alibi_figure(),
                     t5_figure(),       axial_figure(lab),    axial_size_figure()};
  section.takeaway =
      "Absolute positions (sinusoidal, learned, axial) name a place; relative ones (RoPE, ALiBi, "
      "T5) "
      "name a distance, and a distance that was seen in training is known everywhere in the text.";
  lab.progress(1);
  return section;
}

}  // namespace rapt::lab
