#include <cmath>

#include "support/truth/definition.h"

namespace rapt::test {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

double kept(const Dropout& dropout, Index item_head, Index query, Index key) {
  if (dropout.rate == 0) return 1;
  const auto bits = philox(
      {static_cast<std::uint32_t>(key >> 2), static_cast<std::uint32_t>(query),
       static_cast<std::uint32_t>(item_head), 0},
      {static_cast<std::uint32_t>(dropout.seed), static_cast<std::uint32_t>(dropout.seed >> 32)});
  const auto threshold = static_cast<std::uint64_t>(std::floor(dropout.rate * 0x1p32));
  const std::uint64_t word = bits[static_cast<std::size_t>(key & 3)];
  return word < threshold ? 0 : 1 / (1 - dropout.rate);
}

Doubles doubles(View view) {
  Doubles numbers;
  std::array<Index, 4> size{1, 1, 1, 1}, stride{};
  for (Index axis = 0; axis < view.shape().rank(); ++axis) {
    const auto to = static_cast<std::size_t>(4 - view.shape().rank() + axis);
    size[to] = view.size(axis), stride[to] = view.stride(axis);
  }
  for (Index a = 0; a < size[0]; ++a)
    for (Index b = 0; b < size[1]; ++b)
      for (Index c = 0; c < size[2]; ++c)
        for (Index d = 0; d < size[3]; ++d)
          numbers.push_back(
              view.data()[a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3]]);
  return numbers;
}

Problem problem(View q, View k, View v, const Attention& how) {
  Problem p{.batch = q.batch(),
            .heads = q.heads(),
            .kv_heads = k.heads(),
            .queries = q.tokens(),
            .keys = k.tokens(),
            .dim = q.dim(),
            .value_dim = v.dim(),
            .how = how,
            .q = doubles(q),
            .k = doubles(k),
            .v = doubles(v),
            .slopes = {},
            .kerple = {},
            .table = {},
            .relative_keys = {},
            .relative_values = {},
            .dense = {},
            .sinks = {how.sinks.begin(), how.sinks.end()}};
  if (how.bias.alibi) p.slopes = {how.bias.alibi->slopes.begin(), how.bias.alibi->slopes.end()};
  if (const auto& kerple = how.bias.kerple) {
    p.kerple = {kerple->amplitudes.begin(), kerple->amplitudes.end()};
    p.kerple.insert(p.kerple.end(), kerple->rates.begin(), kerple->rates.end());
  }
  if (how.bias.table) p.table = doubles(how.bias.table->values);
  if (how.bias.keys) p.relative_keys = doubles(how.bias.keys->table);
  if (!how.relative_values.empty()) p.relative_values = doubles(how.relative_values);
  if (how.bias.dense) p.dense = doubles(how.bias.dense->values);
  return p;
}

}  // namespace rapt::test
