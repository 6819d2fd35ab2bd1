#include "rapt/positions.h"

#include <numeric>

#include "rapt/rope.h"
#include "support/engine.h"
#include "tools/bits.h"

namespace rapt::test {
namespace {

std::vector<RopeOptions> ropes() {
  std::vector<RopeOptions> all;
  for (const RopeLayout layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
    RopeOptions plain{.dim = 24, .layout = layout};
    std::vector<RopeScaling> scalings = {std::monostate{},
                                         LinearRope{.factor = 3},
                                         NtkRope{.factor = 3},
                                         DynamicNtkRope{.factor = 2, .trained_tokens = 50},
                                         YarnRope{.factor = 4, .trained_tokens = 64},
                                         Llama3Rope{.factor = 8, .trained_tokens = 64}};
    for (const RopeScaling& scaling : scalings) {
      plain.scaling = scaling;
      all.push_back(plain);
    }
    all.push_back({.dim = 24, .rotated = 10, .layout = layout});
    all.push_back({.dim = 24, .layout = layout, .xpos = XPos{}});
    all.push_back({.dim = 128, .base = 500000, .layout = layout});
  }
  return all;
}

void rope(Bits& bits, const Context& context) {
  const Tensor x = random_tensor({2, 3, 70, 24}, 5), wide = random_tensor({2, 3, 70, 128}, 6);
  for (const RopeOptions& options : ropes())
    for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
      const Rope made = Rope(options).for_length(200).for_queries();
      Tensor y = (options.dim == 24 ? x : wide).converted(type);
      made.apply(y, 100, context);
      bits.add(y);
      made.apply_backward(y, 33, context);
      bits.add(y);
      bits.add(std::vector<double>(made.frequencies().begin(), made.frequencies().end()));
    }
}

void tables(Bits& bits, const Context&) {
  for (const auto layout : {Sinusoidal::Layout::interleaved, Sinusoidal::Layout::halves})
    for (const auto frequencies :
         {Sinusoidal::Frequencies::exclusive, Sinusoidal::Frequencies::inclusive})
      for (const Index dim : {8, 9, 64})
        bits.add(sinusoidal({.dim = dim, .layout = layout, .frequencies = frequencies}, 1000, 50));
  const Tensor table = random_tensor({90, 12}, 3), dout = random_tensor({2, 40, 12}, 4);
  bits.add(learned_positions(table, {2, 40}, 7, 2));
  bits.add(learned_positions_backward(dout, 90, 7, 2));
  const Tensor rows = random_tensor({8, 5}, 5), columns = random_tensor({10, 7}, 6);
  for (const auto order : {Axial::Order::row_major, Axial::Order::column_major}) {
    const Axial axial{rows, columns, order};
    bits.add(axial_positions(axial, {2, 40}, 11));
    const AxialGradients g = axial_positions_backward(dout, axial, 11);
    bits.add(g.drows), bits.add(g.dcolumns);
  }
}

}  // namespace

const std::vector<Section>& position_sections() {
  static const std::vector<Section> all = {{"rope", rope}, {"position tables", tables, false}};
  return all;
}

}  // namespace rapt::test
