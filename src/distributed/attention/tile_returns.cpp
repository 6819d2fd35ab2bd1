#include "distributed/attention/tile_returns.h"

namespace rapt::detail {

TileReturns::TileReturns(Communicator& communicator, const TileTransfer& transfer,
                         std::vector<Result> results, std::span<const Index> own_tiles,
                         Index tokens, Index tag)
    : transfer_(transfer),
      results_(std::move(results)),
      rows_(own_rows(transfer.out, own_tiles, tokens)),
      tag_(tag),
      sent_(std::ssize(transfer.in)),
      returned_(std::ssize(transfer.out)),
      views_(std::ssize(results_)),
      messages_(communicator) {
  for (IndexedVector<AnyMutableView>& views : views_) views.resize(std::ssize(transfer.in));
}

Index TileReturns::numbers_of(Index tokens) const {
  Index numbers = 0;
  for (const Result& result : results_)
    numbers += heads_.count * result.head_factor * tokens * result.dim;
  return numbers;
}

void TileReturns::begin(const HeadRange& heads) {
  heads_ = heads;
  for (Index source = 0; source < std::ssize(transfer_.in); ++source) {
    const Index tokens = element(transfer_.in, source).tokens;
    float* at = at_least(sent_[source], numbers_of(tokens));
    for (Index i = 0; i < std::ssize(results_); ++i) {
      const Shape shape{1, heads.count * results_[i].head_factor, tokens, results_[i].dim};
      views_[i][source] = AnyMutableView::unchecked(at, Type::f32, shape, shape.row_major());
      at += shape.elements();
    }
  }
}

void TileReturns::start() {
  const auto bytes = [](float* numbers, Index count) {
    return std::as_writable_bytes(std::span(numbers, to_size(count)));
  };
  for (Index i = 0; i < std::ssize(transfer_.out); ++i) {
    const PeerTiles& peer = element(transfer_.out, i);
    const Index numbers = numbers_of(peer.tokens);
    messages_.receive(peer.peer, tag_, bytes(at_least(returned_[i], numbers), numbers));
  }
  for (Index source = 0; source < std::ssize(transfer_.in); ++source) {
    const PeerTiles& peer = element(transfer_.in, source);
    messages_.send(peer.peer, tag_, bytes(sent_[source].data(), numbers_of(peer.tokens)));
  }
}

}  // namespace rapt::detail
