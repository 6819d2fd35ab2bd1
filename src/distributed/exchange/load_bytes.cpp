#include "distributed/exchange/load_bytes.h"

#include <algorithm>

#include "base/sizes.h"
#include "rapt/plan.h"

namespace rapt::detail {
namespace {

constexpr double row_statistics = 16;    // max, 1 / sum and delta of a query, backward
constexpr double share_statistics = 12;  // max and sum of a part of a query's softmax
constexpr double result_bytes = 4;       // results travel in f32

double tile_rows(Index heads, const CallSize& size) {
  return static_cast<double>(Plan::tile * heads * size.batch);
}

double row_bytes(Index dim, const CallSize& size) {
  return static_cast<double>(dim) * static_cast<double>(size_of(size.type));
}

}  // namespace

TileBytes forward_tile_bytes(const CallSize& size) {
  const double keys = tile_rows(size.kv_heads, size), queries = tile_rows(size.heads, size);
  return {.keys_out = keys * (row_bytes(size.dim, size) + row_bytes(size.value_dim, size)),
          .keys_back = 0,
          .queries_out = queries * row_bytes(size.dim, size),
          .queries_back =
              queries * (static_cast<double>(size.value_dim) * result_bytes + share_statistics)};
}

TileBytes backward_tile_bytes(const CallSize& size, bool strict) {
  const double keys = tile_rows(size.kv_heads, size), queries = tile_rows(size.heads, size);
  TileBytes bytes{.keys_out = keys * (row_bytes(size.dim, size) + row_bytes(size.value_dim, size)),
                  .keys_back = keys * static_cast<double>(size.dim + size.value_dim) * result_bytes,
                  .queries_out = queries * (row_bytes(size.dim, size) +
                                            row_bytes(size.value_dim, size) + row_statistics),
                  .queries_back = queries * static_cast<double>(size.dim) * result_bytes};
  if (strict) bytes.keys_back = bytes.queries_back = 0;
  return bytes;
}

Index head_ranges(const CallSize& size, Index tokens_of_rank) {
  constexpr Index worth_sending = Index{1} << 20;
  const Index heads = std::max<Index>(1, size.batch * size.kv_heads);
  const Index head_bytes = tokens_of_rank * (size.dim + size.value_dim) * Index{sizeof(float)};
  const Index step = std::clamp<Index>(worth_sending / std::max<Index>(1, head_bytes), 1, heads);
  return divide_up(heads, step);
}

void set_bytes(RankLoad& rank, const Traffic& visitors, const CallSize& size, bool strict) {
  const TileBytes forward = forward_tile_bytes(size), backward = backward_tile_bytes(size, strict);
  const auto sent = [](const TileBytes& bytes, const Traffic& keys, const Traffic& queries) {
    return static_cast<double>(keys.keys_sent) * bytes.keys_out +
           static_cast<double>(keys.keys_received) * bytes.keys_back +
           static_cast<double>(queries.queries_sent) * bytes.queries_out +
           static_cast<double>(queries.queries_received) * bytes.queries_back;
  };
  const auto turned = [](const Traffic& t) {
    return Traffic{t.keys_received, t.keys_sent, t.queries_received, t.queries_sent};
  };
  const Traffic& mine = rank.traffic;
  const Traffic& queries = strict ? visitors : mine;
  rank.forward_bytes_sent = sent(forward, mine, mine);
  rank.forward_bytes_received = sent(forward, turned(mine), turned(mine));
  rank.backward_bytes_sent = sent(backward, mine, queries);
  rank.backward_bytes_received = sent(backward, turned(mine), turned(queries));
}

}  // namespace rapt::detail
