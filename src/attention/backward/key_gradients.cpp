#include "attention/backward/key_gradients.h"

namespace rapt::detail {
namespace {

/// `rows` name a head of the call.
GradientRows place_gradient(const CallPart& part, const TilePlace& at, const HeadRange& heads,
                            GradientRows rows, const AnyMutableView* CallPart::*received) {
  rows.first = at.first;
  if (at.source == TilePlace::here) return rows;
  rows.head += rows.item * rows.to.heads() - heads.first;
  rows.item = 0;
  rows.to = (part.*received)[at.source];
  return rows;
}

}  // namespace

GradientRows key_gradient_rows(const Call& call, const KeyPlace& place, const AnyMutableView& here,
                               const AnyMutableView* CallPart::*received) {
  const auto& [item, kv_head, key_tile] = place;
  const Index count = call.tile_keys(key_tile);
  if (call.part == nullptr) return {here, item, kv_head, key_tile * tile, count};
  return place_gradient(*call.part, call.part->keys.places[key_tile], call.part->heads,
                        {here, item, kv_head, 0, count}, received);
}

GradientRows query_gradient_rows(const Call& call, const QueryPlace& place,
                                 const AnyMutableView& here) {
  const auto& [item, head, query_tile] = place;
  const Index count = call.tile_rows(query_tile);
  if (call.part == nullptr) return {here, item, head, query_tile * tile, count};
  const HeadRange heads{call.part->heads.first * call.group, call.part->heads.count * call.group};
  return place_gradient(*call.part, call.part->queries.places[query_tile], heads,
                        {here, item, head, 0, count}, &CallPart::dq);
}

KeyGradients<float>::KeyGradients(const Call& call, Index key_tiles)
    : call_(call),
      width_(packed_width<float>(call.kernels, call.dim)),
      value_width_(packed_width<float>(call.kernels, call.value_dim)),
      tiles_(key_tiles),
      query_rows_(tile * width_),
      dout_rows_(tile * value_width_) {}

KeyGradients<float>::Tile::Tile(const Call& call)
    : key_panels(tile * call.dim),
      key_rows(tile * packed_width<float>(call.kernels, call.dim)),
      value_panels(tile * call.value_dim),
      dkeys(tile * packed_width<float>(call.kernels, call.dim)),
      dvalues(tile * packed_width<float>(call.kernels, call.value_dim)) {}

void KeyGradients<float>::load_keys(Index i, const InputRows& keys, const InputRows& values,
                                    const double* factors) {
  std::unique_ptr<Tile>& place = tiles_[i];
  if (idle_.empty()) {
    place = std::make_unique<Tile>(call_);
  } else {
    place = std::move(idle_.back());
    idle_.pop_back();
  }
  const TileKernels<float>& kernels = call_.kernels.tiles;
  place->keys_finite = kernels.pack_panels(keys, call_.dim, factors, place->key_panels.data());
  kernels.pack_rows(keys, call_.dim, factors, place->key_rows.data());
  kernels.pack_panels(values, call_.value_dim, nullptr, place->value_panels.data());
  place->dkeys.clear();
  place->dvalues.clear();
}

void KeyGradients<float>::load_queries(const GradientTile<float>& from, const InputRows& queries,
                                       const InputRows& douts, Index) {
  const TileKernels<float>& kernels = call_.kernels.tiles;
  queries_finite_ = kernels.pack_rows(queries, call_.dim, from.factors(), query_rows_.data());
  douts_finite_ =
      kernels.pack_rows(douts, call_.value_dim, from.output_factors(), dout_rows_.data());
}

void KeyGradients<float>::products(Index i, GradientTile<float>& from, float* dqueries) {
  Tile& t = *tiles_[i];
  const TileKernels<float>& kernels = call_.kernels.tiles;
  const TileMask& mask = from.mask();
  const Index rows = from.rows();
  if (call_.wants_key_gradients()) {
    accumulate_transposed(kernels, from.probabilities(), douts(), mask, rows, t.dvalues.recent());
    accumulate_transposed(kernels, from.dlogits(), queries(), mask, rows, t.dkeys.recent());
  }
  if (call_.wants_query_gradients())
    accumulate_values(kernels, from.dlogits(), {t.key_rows.data(), width_, t.keys_finite}, mask,
                      rows, dqueries);
}

void KeyGradients<float>::flush(Index i) {
  tiles_[i]->dkeys.flush(call_.kernels.vectors);
  tiles_[i]->dvalues.flush(call_.kernels.vectors);
}

void KeyGradients<float>::write(Index i, const KeyPlace& place, const GradientViews& gradients) {
  const auto copy = [&](const FlushedSums& sums, double factor, const GradientRows& rows) {
    const Index width = sums.size() / tile;
    for (Index r = 0; r < rows.count; ++r)
      deliver_row(call_.kernels, call_.key_order, rows.to, rows.item, rows.head, rows.first + r,
                  [&](float* out) {
                    sums.narrow(call_.kernels.vectors, r * width, rows.to.dim(), factor, out);
                  });
  };
  copy(tiles_[i]->dkeys, call_.score_rule.key_gradient_factor(),
       key_gradient_rows(call_, place, gradients.dk, &CallPart::dk));
  copy(tiles_[i]->dvalues, 1, key_gradient_rows(call_, place, gradients.dv, &CallPart::dv));
  idle_.push_back(std::move(tiles_[i]));
}

}  // namespace rapt::detail
