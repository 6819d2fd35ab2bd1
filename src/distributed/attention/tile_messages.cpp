#include "distributed/attention/tile_messages.h"

#include <algorithm>
#include <cstring>

namespace rapt::detail {
namespace {

Index row_bytes(const AnyView& operand) {
  return operand.dim() * static_cast<Index>(size_of(operand.type()));
}

}  // namespace

std::vector<std::vector<RowRun>> own_rows(const std::vector<PeerTiles>& peers,
                                          std::span<const Index> own_tiles, Index tokens) {
  std::vector<std::vector<RowRun>> rows;
  for (const PeerTiles& peer : peers) {
    std::vector<RowRun>& runs = rows.emplace_back();
    for (const Index number : peer.tiles) {
      const auto at = std::lower_bound(own_tiles.begin(), own_tiles.end(), number);
      const Index first = (at - own_tiles.begin()) * Plan::tile;
      const Index count = std::min(Plan::tile, tokens - number * Plan::tile);
      if (!runs.empty() && runs.back().first + runs.back().count == first)
        runs.back().count += count;
      else
        runs.push_back({first, count});
    }
  }
  return rows;
}

TileMessages::TileMessages(Communicator& communicator, const TileTransfer& transfer,
                           std::vector<AnyView> operands, std::span<const Index> own_tiles,
                           Index tokens, Index kv_heads, Index tag)
    : transfer_(transfer),
      operands_(std::move(operands)),
      rows_(own_rows(transfer.out, own_tiles, tokens)),
      kv_heads_(std::max<Index>(1, kv_heads)),
      tag_(tag),
      in_(std::ssize(transfer.in)),
      out_(std::ssize(transfer.out)),
      views_(std::ssize(operands_)),
      messages_(communicator) {
  for (IndexedVector<AnyView>& views : views_) views.resize(std::ssize(transfer.in));
}

Index TileMessages::bytes_of(Index tokens, const HeadRange& heads) const {
  Index bytes = 0;
  for (Index i = 0; i < std::ssize(operands_); ++i)
    bytes += heads.count * head_factor(i) * tokens * row_bytes(operands_[i]);
  return bytes;
}

void TileMessages::pack(const std::vector<RowRun>& runs, const HeadRange& heads,
                        std::byte* to) const {
  for (Index i = 0; i < std::ssize(operands_); ++i) {
    const AnyView& from = operands_[i];
    const Index bytes = row_bytes(from), factor = head_factor(i);
    const bool joined = from.stride(2) == from.dim();
    for (Index head = heads.first * factor; head < (heads.first + heads.count) * factor; ++head) {
      for (const RowRun& run : runs) {
        for (Index row = 0; row < run.count; row += joined ? run.count : 1) {
          const Index some = bytes * (joined ? run.count : 1);
          std::memcpy(to, from.row(head / from.heads(), head % from.heads(), run.first + row),
                      to_size(some));
          to += some;
        }
      }
    }
  }
}

void TileMessages::view_received(Index source, const HeadRange& heads) {
  const Index tokens = element(transfer_.in, source).tokens;
  const std::byte* at = in_[source].data();
  for (Index i = 0; i < std::ssize(operands_); ++i) {
    const Shape shape{1, heads.count * head_factor(i), tokens, operands_[i].dim()};
    views_[i][source] = AnyView::unchecked(at, operands_[i].type(), shape, shape.row_major());
    at += heads.count * head_factor(i) * tokens * row_bytes(operands_[i]);
  }
}

void TileMessages::start(const HeadRange& heads) {
  finish();
  for (Index source = 0; source < std::ssize(transfer_.in); ++source) {
    const PeerTiles& peer = element(transfer_.in, source);
    const Index bytes = bytes_of(peer.tokens, heads);
    messages_.receive(peer.peer, tag_, {at_least(in_[source], bytes), to_size(bytes)});
    view_received(source, heads);
  }
  for (Index i = 0; i < std::ssize(transfer_.out); ++i) {
    const PeerTiles& peer = element(transfer_.out, i);
    const Index bytes = bytes_of(peer.tokens, heads);
    std::byte* to = at_least(out_[i], bytes);
    pack(element(rows_, i), heads, to);
    messages_.send(peer.peer, tag_, {to, to_size(bytes)});
  }
}

}  // namespace rapt::detail
