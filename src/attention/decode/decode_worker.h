#pragma once

#include "attention/decode/decode.h"
#include "attention/decode/scratch.h"

namespace rapt {

/// Query rows of a key head that go side by side.
inline constexpr Index most_thin_rows = ThinPass::most_rows;

/// What one task found out about each row of a head.
struct DecodePart {
  float reference[most_thin_rows];
  double sum[most_thin_rows];
  std::uint32_t saw_key;  // a bit per row
};

/// Some tiles, counted among those that are visited, of some key heads.
struct DecodeTask {
  const DecodeItem& item;
  Index first_head, heads;
  Index first_tile, end_tile;
};

/// Where a task leaves what it found: of its n-th head in part[n * part_step], and the sums of p v
/// relative to part.reference as [rows][width] from out + n * out_step on.
struct DecodeRoom {
  DecodePart* part;
  Index part_step;
  float* out;
  Index out_step;
};

inline Index thin_rows_of(const Call& call) { return call.group * call.queries; }

/// Everything one thread needs to take the rows of some key heads past some tiles.
class DecodeWorker {
 public:
  void run(const DecodeTask& task, const DecodeRoom& room);

 private:
  void begin(const DecodeTask& task, const DecodeRoom& room);
  void load_queries(const DecodeItem& item, Index kv_head, float* to) const;
  void pass(const DecodeTask& task, Index tile_index, Index next_tile, std::int32_t mask_id);
  void take_mask(const Call& call, std::int32_t mask_id);
  void add_bias(const Call& call, const ThinPlace& place, Index slots, float* scores) const;
  /// Some heads of the task, counted from its first.
  struct Heads {
    Index begin, end;
  };
  void visit(const DecodeTask& task, Heads heads, Index key_tile, Index next_tile);
  void finish(const DecodeTask& task, const DecodeRoom& room) const;

  // Nothing is cleared that is about to be written: a call over few keys is over as soon.
  Desk desk_;
  float* queries_ = nullptr;       // [heads][rows][query stride]
  std::byte* bytes_ = nullptr;     // the same in whole numbers, where keys are multiplied so
  SoftmaxTile* states_ = nullptr;  // of the rows of each key head
  alignas(64) float scores_[most_thin_rows * tile];
  TileMask mask_;
  const Call* mask_call_ = nullptr;
  std::int32_t mask_id_ = 0;
  std::uint32_t mask_sees_ = 0;          // a bit per row
  Index together_ = 1;                   // heads whose rows may lie side by side
  Index seen_ = 0;                       // slots up to the last one that any row sees
  std::uint64_t words_[most_thin_rows];  // of all rows that lie side by side
  std::uint32_t saw_key_ = 0;
};

}  // namespace rapt
