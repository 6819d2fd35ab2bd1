#pragma once

#include "attention/decode/decode.h"
#include "attention/decode/scratch.h"

namespace rapt::detail {

/// Query rows of a key head that are computed together.
inline constexpr Index max_query_rows = FullPage::max_rows;

/// The result of one task for each row of a head.
struct DecodePart {
  float running_max[max_query_rows];
  double sum[max_query_rows];
  std::uint32_t saw_key;  // a bit per row
};

/// Some tiles, counted among those that are visited, of some key heads.
struct DecodeTask {
  const DecodeItem& item;
  Index first_head, heads;
  Index first_tile, end_tile;
};

/// Where a task writes: its n-th head to part[n * part_step], and the sums of p v relative to
/// part.running_max as [rows][width] from out + n * out_step on.
struct DecodeResults {
  DecodePart* part;
  Index part_step;
  float* out;
  Index out_step;
};

/// Query rows that share a key head.
inline Index rows_per_kv_head(const Call& call) { return call.group * call.queries; }

/// One thread's state for decoding: the query rows of some key heads against some tiles of keys.
class DecodeWorker {
 public:
  void run(const DecodeTask& task, const DecodeResults& results);

 private:
  void begin(const DecodeTask& task, const DecodeResults& results);
  void load_queries(const DecodeItem& item, Index kv_head, float* to) const;
  void attend_tile(const DecodeTask& task, Index tile_index, Index next_tile, std::int32_t mask_id);
  void load_mask(const Call& call, std::int32_t mask_id);
  void add_bias(const Call& call, const KeyTilePlace& place, Index slots, float* scores) const;
  /// Some heads of the task, counted from its first.
  struct Heads {
    Index begin, end;
  };
  void visit(const DecodeTask& task, Heads heads, Index key_tile, Index next_tile);
  void finish(const DecodeTask& task, const DecodeResults& results) const;

  // Nothing is cleared that is about to be written: clearing takes as long as a call over few keys.
  Scratch scratch_;
  float* queries_ = nullptr;           // [heads][rows][query stride]
  std::byte* int8_queries_ = nullptr;  // the same in fixed point, if the keys multiply int8
  SoftmaxTile* states_ = nullptr;      // of the rows of each key head
  alignas(64) float scores_[max_query_rows * tile];
  TileMask mask_;
  const Call* mask_call_ = nullptr;
  std::int32_t mask_id_ = 0;
  std::uint32_t mask_sees_ = 0;          // a bit per row
  Index together_ = 1;                   // heads whose rows may be computed together
  Index seen_ = 0;                       // slots up to the last one that any row sees
  std::uint64_t words_[max_query_rows];  // masks of all rows that are computed together
  std::uint32_t saw_key_ = 0;
};

}  // namespace rapt::detail
