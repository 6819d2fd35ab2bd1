#include "attention/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/row_result.h"

namespace rapt {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr Index most_rows = 16;
/// Key tiles of one task: short enough to share out, long enough to be worth a task, and no longer
/// than f32 sums may grow.
constexpr Index split_tiles = 16;
/// Calls that read less than this are over before another thread has woken up.
constexpr Index bytes_worth_threads = Index{256} << 10;

Index rows_of(const Call& call) { return call.group * call.queries; }

Index visited_tiles(const Call& call) {
  Index count = 0;
  if (call.queries > 0)
    for (const Visit& visit : call.plan->visits(0)) count += visit.count;
  return count;
}

/// What one task found out about each row.
struct Part {
  float reference[most_rows];
  double sum[most_rows];
  std::uint32_t saw_key = 0;  // a bit per row
};

/// Everything one thread needs to take the rows of a key head past some tiles.
class DecodeWorker {
 public:
  explicit DecodeWorker(const Call& call) : queries_(rows_of(call) * query_stride(call.dim)) {}

  /// Tiles first .. end - 1 of those that are visited. `out` [rows][width] gets the sums of p v
  /// relative to part.reference.
  void run(const DecodeItem& item, Index kv_head, Index first, Index end, Part& part, float* out) {
    begin(item, kv_head, out);
    Index before = 0;  // visited tiles that lie before
    for (const Visit& visit : item.call.plan->visits(0)) {
      const Index last = visit.first + std::min<Index>(end - before, visit.count);
      for (Index j = visit.first + std::max<Index>(first - before, 0); j < last; ++j)
        this->visit(item, {kv_head, j, j + 1 < last ? j + 1 : j}, visit.mask);
      before += visit.count;
      if (before >= end) break;
    }
    finish(item.call, part);
  }

 private:
  void begin(const DecodeItem& item, Index kv_head, float* out) {
    const Call& call = item.call;
    const Index rows = rows_of(call);
    for (Index r = 0; r < rows; ++r) {
      const Index query = r % call.queries;
      float* row = queries_.data() + r * query_stride(call.dim);
      call.kernels.load_numbers(
          call.q.row(item.item, kv_head * call.group + r / call.queries, query), call.q.type(),
          call.dim, row);
      const double factor = call.rule.query_factor(query);
      for (Index c = 0; c < call.dim; ++c)
        row[c] = static_cast<float>(static_cast<double>(row[c]) * factor);
      std::fill(row + call.dim, row + query_stride(call.dim), 0.0f);
    }
    std::fill_n(reference_, rows, minus_infinity);
    std::fill_n(lane_sums_, rows * max_lanes, 0.0f);
    std::fill_n(out, rows * thin_width(call), 0.0f);
    saw_key_ = 0;
    state_ = {reference_,       lane_sums_, sums_,   out,     nullptr,
              thin_width(call), false,      nullptr, nullptr, nullptr};
  }

  /// One bit word per row: all query heads of the group see what the query sees. The heads of a
  /// call share their masks, and short sequences have only one.
  void take_mask(const Call& call, std::int32_t mask_id) {
    if (&call == mask_call_ && mask_id == mask_id_) return;
    mask_call_ = &call;
    mask_id_ = mask_id;
    if (mask_id == Visit::whole) {
      mask_.set_whole();
    } else {
      const auto words = call.plan->mask(mask_id);
      std::fill(words_, words_ + tile, std::uint64_t{0});
      for (Index r = 0; r < rows_of(call); ++r)
        words_[r] = words[static_cast<std::size_t>(r % call.queries)];
      mask_.set(std::span<const std::uint64_t, tile>(words_, tile), call.kernels.lanes);
    }
    mask_sees_ = static_cast<std::uint32_t>(mask_.rows_that_see());
  }

  void add_bias(const Call& call, const ThinPlace& place, Index slots) {
    for (Index r = 0; r < rows_of(call); ++r) {
      const Index position = call.keys - call.queries + r % call.queries;
      float bias[tile];
      call.rule.diagonal_part(place.kv_head * call.group + r / call.queries,
                              place.key_tile * tile - position, slots, bias);
      float* row = scores_ + r * tile;
      for (Index c = 0; c < slots; ++c) row[c] += bias[c];
    }
  }

  /// The first keys of the tile, up to the last that any row sees, in whole vectors.
  Index slots_in_sight(Index rows) const {
    if (mask_.whole()) return tile;
    Index end = 0;
    for (Index s = 0; s < divide_up(rows, strip); ++s) end = std::max(end, mask_.clips()[s].end);
    return end;
  }

  void visit(const DecodeItem& item, const ThinPlace& place, std::int32_t mask_id) {
    const Call& call = item.call;
    take_mask(call, mask_id);
    saw_key_ |= mask_sees_;
    const ThinRows rows{rows_of(call), mask_, slots_in_sight(rows_of(call))};
    item.keys.scores(place, rows, queries_.data(), scores_);
    if (call.rule.has_softcap())
      call.kernels.softcap(scores_, divide_up(rows.count, strip), mask_.clips(),
                           call.rule.softcap_log2(), nullptr);
    if (call.rule.has_diagonal()) add_bias(call, place, rows.slots);
    call.kernels.absorb(scores_, rows.count, mask_.clips(), mask_.words(), state_);
    item.keys.gather(place, rows, scores_, state_.out);
  }

  void finish(const Call& call, Part& part) {
    const Index rows = rows_of(call);
    part.saw_key = saw_key_;
    for (Index r = 0; r < rows; ++r) {
      part.reference[r] = reference_[r];
      part.sum[r] = 0;
      for (Index lane = 0; lane < call.kernels.lanes; ++lane)
        part.sum[r] += static_cast<double>(lane_sums_[r * max_lanes + lane]);
    }
  }

  Buffer<float> queries_;
  alignas(64) float scores_[most_rows * tile] = {};  // kernels work on whole strips of rows
  alignas(64) float lane_sums_[most_rows * max_lanes];
  alignas(64) float reference_[most_rows];
  alignas(64) double sums_[most_rows];
  SoftmaxTile state_{};
  TileMask mask_;
  const Call* mask_call_ = nullptr;
  std::int32_t mask_id_ = 0;
  std::uint32_t mask_sees_ = 0;  // a bit per row
  std::uint64_t words_[tile];
  std::uint32_t saw_key_ = 0;
};

/// What all tasks of a call found out, and how it is put together.
class DecodeRun {
 public:
  explicit DecodeRun(std::span<const DecodeItem> items) : items_(items) {
    for (Index i = 0; i < static_cast<Index>(items.size()); ++i) {
      const Call& call = item(i).call;
      most_rows_ = std::max(most_rows_, rows_of(call));
      bytes_ += visited_tiles(call) * call.kv_heads * item(i).keys.tile_bytes();
      for (Index head = 0; head < call.kv_heads; ++head) add_tasks(i, head);
    }
    parts_.resize(tasks_.size());
    outs_ = Buffer<float>(checked_product({task_count(), most_rows_, width()}));
  }

  void compute(const Context& context) {
    if (bytes_ < bytes_worth_threads) {
      DecodeWorker worker(item(0).call);
      for (Index index = 0; index < task_count(); ++index) run(worker, index);
      return;
    }
    Crew<DecodeWorker> crew(context);
    for_each_task(context, task_count(),
                  [&](Index index, Index worker) { run(crew.get(worker, item(0).call), index); });
  }

  void write() {
    for (Index first = 0; first < task_count();) {
      const Task& task = tasks_[static_cast<std::size_t>(first)];
      const Index splits = splits_of(item(task.item).call);
      for (Index r = 0; r < rows_of(item(task.item).call); ++r) write_row(task, first, splits, r);
      first += splits;
    }
  }

 private:
  struct Task {
    Index item, kv_head, split;
  };

  void run(DecodeWorker& worker, Index index) {
    const Task& task = tasks_[static_cast<std::size_t>(index)];
    worker.run(item(task.item), task.kv_head, task.split * split_tiles,
               (task.split + 1) * split_tiles, parts_[static_cast<std::size_t>(index)],
               out(index, 0));
  }

  static Index splits_of(const Call& call) {
    return std::max<Index>(1, divide_up(visited_tiles(call), split_tiles));
  }
  void add_tasks(Index item_index, Index kv_head) {
    for (Index s = 0; s < splits_of(item(item_index).call); ++s)
      tasks_.push_back({item_index, kv_head, s});
  }

  /// Joins the parts of a row, tasks first .. first + splits - 1, in the order of their keys.
  void write_row(const Task& task, Index first, Index splits, Index r) {
    const Call& call = item(task.item).call;
    const RowPlace place{item(task.item).item, task.kv_head * call.group + r / call.queries,
                         r % call.queries};
    if (splits == 1) {
      const Part& part = parts_[static_cast<std::size_t>(first)];
      const RowSum row{static_cast<double>(part.reference[r]), part.sum[r], saw_key(part, r)};
      write_row_result(call, place, row, item(task.item).output,
                       [&](double factor, float* to) { scale(call, out(first, r), factor, to); });
      return;
    }
    double wide[max_dim];
    const RowSum row = join(call, first, splits, r, wide);
    write_row_result(call, place, row, item(task.item).output,
                     [&](double factor, float* to) { scale(call, wide, factor, to); });
  }

  template <class Number>
  static void scale(const Call& call, const Number* from, double factor, float* to) {
    for (Index c = 0; c < call.value_dim; ++c)
      to[c] = static_cast<float>(static_cast<double>(from[c]) * factor);
  }

  static bool saw_key(const Part& part, Index r) { return (part.saw_key >> r & 1) != 0; }

  RowSum join(const Call& call, Index first, Index splits, Index r, double* wide) {
    const std::span<const Part> parts(parts_.data() + first, static_cast<std::size_t>(splits));
    RowSum row{-std::numeric_limits<double>::infinity(), 0, false};
    for (const Part& part : parts) {
      row.max = std::max(row.max, static_cast<double>(part.reference[r]));
      row.saw_key |= saw_key(part, r);
    }
    std::fill_n(wide, call.value_dim, 0.0);
    for (Index i = 0; i < splits; ++i) {
      const Part& part = parts[static_cast<std::size_t>(i)];
      if (part.reference[r] == minus_infinity && part.sum[r] == 0) continue;
      const double factor = std::exp2(static_cast<double>(part.reference[r]) - row.max);
      row.sum += part.sum[r] * factor;
      const float* from = out(first + i, r);
      for (Index c = 0; c < call.value_dim; ++c) wide[c] += static_cast<double>(from[c]) * factor;
    }
    return row;
  }

  const DecodeItem& item(Index i) const { return items_[static_cast<std::size_t>(i)]; }
  Index task_count() const { return static_cast<Index>(tasks_.size()); }
  Index width() const { return thin_width(item(0).call); }
  float* out(Index task, Index r) { return outs_.data() + (task * most_rows_ + r) * width(); }

  std::span<const DecodeItem> items_;
  std::vector<Task> tasks_;  // the splits of a key head are neighbours
  std::vector<Part> parts_;
  Buffer<float> outs_;  // [tasks][most_rows][width]
  Index most_rows_ = 0, bytes_ = 0;
};

}  // namespace

bool decodes(const Call& call) {
  return !call.how.strict && rows_of(call) <= most_rows && call.rows() > 0 && !call.how.stats &&
         !call.relative && !call.relative_values && !call.rule.has_dense() &&
         !call.rule.has_dropout();
}

std::string way_of_queries(const Call& call) {
  const auto general = [](const std::string& why) { return "as for a prompt: " + why; };
  if (call.how.strict) return general("strict was asked for");
  if (rows_of(call) > most_rows)
    return general(std::to_string(rows_of(call)) + " query rows a key head, more than " +
                   std::to_string(most_rows));
  if (!decodes(call))
    return general("statistics, a dense bias, relative keys or values, or dropout");
  const Index parts = std::max<Index>(1, divide_up(visited_tiles(call), split_tiles));
  return "short: " + std::to_string(rows_of(call)) +
         " query rows of a key head side by side, its keys in " + std::to_string(parts) + " part" +
         (parts == 1 ? "" : "s") + " joined in order";
}

void run_decode(std::span<const DecodeItem> items, const Context& context) {
  if (items.empty()) return;
  DecodeRun run(items);
  run.compute(context);
  run.write();
}

void run_decode(const Call& call, const ForwardOutput& output) {
  std::vector<OperandThinKeys> keys;
  std::vector<DecodeItem> items;
  keys.reserve(static_cast<std::size_t>(call.batch));
  for (Index item = 0; item < call.batch; ++item)
    items.push_back({call, item, keys.emplace_back(call, item), output});
  run_decode(items, call.context);
}

}  // namespace rapt
