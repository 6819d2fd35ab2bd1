#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "python/src/convert/attended_tuple.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/result_array.h"
#include "rapt/bigbird.h"
#include "rapt/reformer_local.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// An attention mask of integers or booleans, [batch][tokens] or [tokens]: 0 is padding.
std::vector<std::uint8_t> attention_mask_of(nb::handle given, const char* name) {
  if (given.is_none()) return {};
  if (is_array(given)) {
    const Array array(given, name);
    std::unique_ptr<bool[]> buffer;
    if (array.element() == Element::boolean) {
      const std::span<const bool> real = array.booleans(buffer);
      return {real.begin(), real.end()};
    }
  }
  std::vector<std::uint8_t> real;
  for (const Index number : indices_of(given, name)) real.push_back(number != 0 ? 1 : 0);
  return real;
}

/// An array [blocks, most] or [heads, blocks, most], whose negative values are unused.
std::vector<BigBird::RandomBlocks> random_of(const Array& array) {
  if (array.rank() != 2 && array.rank() != 3)
    wrong_value("bigbird: random has ", array.rank(),
                " axes, expected [blocks, most] or [heads, blocks, most]");
  const std::vector<Index> numbers = array.to_indices();
  const Index most = array.size(array.rank() - 1), rows = array.size(array.rank() - 2);
  const Index tables = array.rank() == 2 ? 1 : array.size(0);
  std::vector<BigBird::RandomBlocks> random;
  auto next = numbers.begin();
  for (Index table = 0; table < tables; ++table) {
    random.emplace_back(static_cast<std::size_t>(rows));
    for (std::vector<Index>& row : random.back())
      for (Index i = 0; i < most; ++i, ++next)
        if (*next >= 0) row.push_back(*next);
  }
  return random;
}

/// Such an array, or lists: of the blocks of each query block, or of such for each head.
std::vector<BigBird::RandomBlocks> random_of(nb::handle given) {
  if (given.is_none()) return {};
  if (is_array(given)) return random_of(Array(given, "bigbird: random"));
  std::vector<BigBird::RandomBlocks> each;
  if (nb::try_cast(given, each)) return each;
  BigBird::RandomBlocks all;
  if (nb::try_cast(given, all)) return {all};
  wrong_type("bigbird: random is a ", nb::inst_name(given).c_str(),
             ", expected lists of blocks or an array of integers");
}

/// (block, random, first_block_counts, attention_mask, scale)
BigBird bigbird_of(nb::tuple options) {
  if (options.size() != 5) wrong_value("bigbird options: wrong number of fields");
  BigBird how;
  how.block = number<Index>(options[0], "attend_bigbird: block");
  how.random = random_of(options[1]);
  how.first_block_counts = number<Index>(options[2], "attend_bigbird: first_block_counts");
  how.attention_mask = attention_mask_of(options[3], "attend_bigbird: attention_mask");
  how.scale = scale_of(options[4]);
  return how;
}

/// (chunk, before, after, causal, attention_mask, empty_rows, dropout, seed)
ReformerLocal local_of(nb::tuple options) {
  if (options.size() != 8) wrong_value("attend_reformer_local options: wrong number of fields");
  ReformerLocal how;
  how.chunk = number<Index>(options[0], "attend_reformer_local: chunk");
  how.before = number<Index>(options[1], "attend_reformer_local: before");
  how.after = number<Index>(options[2], "attend_reformer_local: after");
  how.causal = nb::cast<bool>(options[3]);
  how.attention_mask = attention_mask_of(options[4], "attend_reformer_local: attention_mask");
  how.empty_rows =
      from_string<ReformerLocal::EmptyRows>(nb::cast<std::string>(nb::str(nb::object(options[5]))));
  how.dropout = {number<double>(options[6], "attend_reformer_local: dropout"),
                 number<std::uint64_t>(options[7], "attend_reformer_local: seed")};
  return how;
}

/// (out, lse, rows) of one of the two attentions, rows as `parts` makes them.
template <class Forward>
nb::tuple forward(nb::tuple given, nb::handle layout_name, const Forward& attend) {
  Array arrays[] = {{given[0], "q"}, {given[1], "k"}, {given[2], "v"}};
  const Layout layout = layout_of(layout_name);
  AnyView views[3];
  for (int i = 0; i < 3; ++i) views[i] = laid_out(arrays[i].operand(), layout);
  Attended y;
  {
    const nb::gil_scoped_release release;
    y = attend(views[0], views[1], views[2]);
  }
  const ResultArray answer(arrays[0]);
  nb::object out = answer.array(std::move(y.out), layout);
  return nb::cast<nb::tuple>(
      attended_tuple(answer, std::move(out), std::move(y), want_lse | want_rows, layout));
}

/// (dq, dk, dv); `kept` is (out, row max, row sum), `out` unrounded.
template <class Backward>
nb::tuple backward(nb::handle dout, nb::tuple given, nb::tuple kept, nb::handle layout_name,
                   const Backward& attend_backward) {
  if (kept.size() != 3) wrong_value("kept has ", kept.size(), " parts, expected (out, max, sum)");
  Array arrays[] = {
      {dout, "dout"}, {given[0], "q"}, {given[1], "k"}, {given[2], "v"}, {kept[0], "out"}};
  const Layout layout = layout_of(layout_name);
  AnyView views[5];
  for (int i = 0; i < 5; ++i) views[i] = laid_out(arrays[i].operand(), layout);
  const Rows rows = rows_of(nb::make_tuple(kept[1], kept[2]), "rows");
  Gradients g;
  {
    const nb::gil_scoped_release release;
    g = attend_backward(views[0], views[1], views[2], views[3], AttendedView(views[4], rows));
  }
  const ResultArray answer(arrays[1]);
  return nb::make_tuple(answer.array(std::move(g.dq), layout),
                        answer.array(std::move(g.dk), layout),
                        answer.array(std::move(g.dv), layout));
}

nb::tuple bigbird_forward(nb::tuple operands, nb::tuple options, nb::handle layout,
                          nb::handle where) {
  return forward(operands, layout,
                 [how = bigbird_of(options), context = context_of(where)](auto... qkv) {
                   return attend_bigbird(qkv..., how, context);
                 });
}

nb::tuple bigbird_backward(nb::handle dout, nb::tuple operands, nb::tuple kept, nb::tuple options,
                           nb::handle layout, nb::handle where) {
  return backward(dout, operands, kept, layout,
                  [how = bigbird_of(options), context = context_of(where)](const auto&... given) {
                    return attend_bigbird_backward(given..., how, context);
                  });
}

nb::tuple local_forward(nb::tuple operands, nb::tuple options, nb::handle layout,
                        nb::handle where) {
  return forward(operands, layout,
                 [how = local_of(options), context = context_of(where)](auto... qkv) {
                   return attend_reformer_local(qkv..., how, context);
                 });
}

nb::tuple local_backward(nb::handle dout, nb::tuple operands, nb::tuple kept, nb::tuple options,
                         nb::handle layout, nb::handle where) {
  return backward(dout, operands, kept, layout,
                  [how = local_of(options), context = context_of(where)](const auto&... given) {
                    return attend_reformer_local_backward(given..., how, context);
                  });
}

}  // namespace

void bind_blocks(nb::module_& module) {
  module.def(
      "bigbird",
      [](Index tokens, Index block, nb::object random, Index head) {
        return bigbird({.block = block, .random = random_of(random)}, tokens, head);
      },
      "tokens"_a, "block"_a = 64, "random"_a = nb::none(), "head"_a = 0,
      "BigBird's blocks as a pattern for so many tokens: the first and the last block, each with "
      "its neighbours, and random ones.");
  module.def("attend_bigbird", &bigbird_forward, "operands"_a, "options"_a, "layout"_a,
             nb::arg("context").none());
  module.def("attend_bigbird_backward", &bigbird_backward, "dout"_a.none(), "operands"_a, "kept"_a,
             "options"_a, "layout"_a, nb::arg("context").none());
  module.def("attend_reformer_local", &local_forward, "operands"_a, "options"_a, "layout"_a,
             nb::arg("context").none());
  module.def("attend_reformer_local_backward", &local_backward, "dout"_a.none(), "operands"_a,
             "kept"_a, "options"_a, "layout"_a, nb::arg("context").none());
}

}  // namespace rapt::python
