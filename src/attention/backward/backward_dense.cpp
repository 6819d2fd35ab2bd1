#include <algorithm>
#include <memory>

#include "attention/backward/backward.h"
#include "attention/backward/gradient_tile.h"

namespace rapt::detail {
namespace {

/// Computes a slice of the bias: one (batch, head) of it and a tile of queries, or all queries
/// where the bias repeats over them.
class DenseWorker {
 public:
  DenseWorker(const Call& call, const BackwardInput& input)
      : call_(call),
        tile_(call, input),
        shape_(call.how.bias.dense->values.shape()),
        keys_(tile * call.dim),
        values_(tile * call.value_dim),
        sums_((shape_[2] > 1 ? tile : 1) * shape_[3]) {}

  void run(Index bias_item, Index bias_head, Index query_tile, float* ddense) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    const Index last_tile = shape_[2] > 1 ? query_tile + 1 : call_.query_tiles();
    for (Index item = first(0, bias_item); item < last(0, bias_item, call_.batch); ++item) {
      for (Index head = first(1, bias_head); head < last(1, bias_head, call_.heads); ++head) {
        for (Index t = query_tile; t < last_tile; ++t) add_queries(item, head, t);
      }
    }
    const Index row = (bias_item * shape_[1] + bias_head) * shape_[2] +
                      (shape_[2] > 1 ? call_.whole_query_tile(query_tile) * tile : 0);
    const Index rows = shape_[2] > 1 ? call_.tile_rows(query_tile) : 1;
    for (Index i = 0; i < rows * shape_[3]; ++i)
      ddense[row * shape_[3] + i] = static_cast<float>(sums_[i]);
  }

 private:
  Index first(Index axis, Index index) const { return shape_[axis] == 1 ? 0 : index; }
  Index last(Index axis, Index index, Index size) const {
    return shape_[axis] == 1 ? size : index + 1;
  }

  void add_queries(Index item, Index head, Index query_tile) {
    tile_.load_queries(item, head, query_tile);
    for (const Visit& visit : call_.plan->visits(query_tile)) {
      for (Index j = visit.first; j < visit.first + visit.count; ++j)
        add_tile(item, head, j, visit.mask);
    }
  }

  void add_tile(Index item, Index head, Index j, std::int32_t mask_id) {
    const Index kv_head = call_.kv_head(head);
    const Index count = call_.tile_keys(j);
    call_.kernels.tiles.pack_panels(call_.key_rows(call_.k, item, kv_head, j), call_.dim, nullptr,
                                    keys_.data());
    call_.kernels.tiles.pack_panels(call_.key_rows(call_.v, item, kv_head, j), call_.value_dim,
                                    nullptr, values_.data());
    tile_.differentiate(keys_.data(), values_.data(), j, mask_id);
    for (Index r = 0; r < tile_.rows(); ++r) {
      for (Index c = 0; c < count; ++c) {
        const Index column = shape_[3] > 1 ? call_.whole_key_tile(j) * tile + c : 0;
        sums_[(shape_[2] > 1 ? r : 0) * shape_[3] + column] +=
            static_cast<double>(tile_.dlogits()[r * tile + c]);
      }
    }
  }

  const Call& call_;
  GradientTile<float> tile_;
  Shape shape_;
  Buffer<float> keys_, values_;
  Buffer<double> sums_;
};

}  // namespace

void run_dense_gradient(const Call& call, const BackwardInput& input, Tensor& ddense) {
  if (call.rows() == 0 || call.keys == 0) return;
  const Shape& shape = ddense.shape();
  const Index tiles = shape[2] > 1 ? call.query_tiles() : 1;
  Workers<DenseWorker> workers(call.context);
  for_each_task(call.context, shape[0] * shape[1] * tiles, [&](Index task, Index worker) {
    const Index slice = task / tiles;
    workers.get(worker, call, input)
        .run(slice / shape[1], slice % shape[1], task % tiles, ddense.data());
  });
}

}  // namespace rapt::detail
