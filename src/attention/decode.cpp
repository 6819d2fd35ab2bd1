#include "attention/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory_resource>
#include <vector>

#include "attention/decode_worker.h"
#include "attention/row_result.h"

namespace rapt {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
/// Key tiles of one task: short enough to share out, long enough to be worth a task, and no longer
/// than f32 sums may grow.
constexpr Index split_tiles = 16;
/// Tasks for each thread, if there are as many: enough to balance, few enough to read long runs.
constexpr Index tasks_each = 8;

Index visited_tiles(const Call& call) {
  Index count = 0;
  if (call.queries > 0)
    for (const Visit& visit : call.plan->visits(0)) count += visit.count;
  return count;
}

Index splits_for(Index tiles) { return std::max<Index>(1, divide_up(tiles, split_tiles)); }

/// What all tasks of a call found out, and how it is put together.
class DecodeRun {
 public:
  explicit DecodeRun(std::span<const DecodeItem> items)
      : items_(items), places_(place_room(items)) {
    for (Index i = 0; i < std::ssize(items); ++i) {
      const Call& call = item(i).call;
      const Index tiles = visited_tiles(call);
      most_rows_ = std::max(most_rows_, thin_rows_of(call));
      bytes_ +=
          std::min(tiles * tile, call.keys) * call.kv_heads * item(i).keys.tile_bytes() / tile;
      places_[i] = {part_count_, splits_for(tiles)};
      part_count_ += call.kv_heads * places_[i].splits;
    }
    const Index outs = checked_product({part_count_, most_rows_, width()});
    desk_.clear(Desk::bytes_of<DecodePart>(part_count_) + Desk::bytes_of<float>(outs));
    parts_ = desk_.place<DecodePart>(part_count_);
    outs_ = desk_.place<float>(outs);
  }

  void compute(const Context& context) {
    if (bytes_ < bytes_worth_threads) {
      DecodeWorker worker;
      for_each_part(std::numeric_limits<Index>::max(),
                    [&](const Task& task) { run(worker, task); });
      return;
    }
    std::vector<Task> tasks;
    for_each_part(part_count_ / (tasks_each * workers(context)),
                  [&](const Task& task) { tasks.push_back(task); });
    Crew<DecodeWorker> crew(context);
    for_each_task_at_home(context, std::ssize(tasks), [&](Index index, Index worker) {
      run(crew.get(worker), tasks[static_cast<std::size_t>(index)]);
    });
  }

  void write() {
    for (Index i = 0; i < std::ssize(items_); ++i)
      for (Index head = 0; head < item(i).call.kv_heads; ++head)
        for (Index r = 0; r < thin_rows_of(item(i).call); ++r) write_row(i, head, r);
  }

 private:
  struct Task {
    Index item, first_head, heads, split;
  };

  /// Of an item: where its parts begin, [kv_heads][splits].
  struct Place {
    Index first, splits;
  };

  Place* place_room(std::span<const DecodeItem> items) {
    if (items.size() == 1) return &one_place_;
    room_ = Buffer<Place>(std::ssize(items));
    return room_.data();
  }

  void run(DecodeWorker& worker, const Task& task) {
    const Index step = places_[task.item].splits;
    const Index first = first_part(task.item, task.first_head) + task.split;
    worker.run({item(task.item), task.first_head, task.heads, task.split * split_tiles,
                (task.split + 1) * split_tiles},
               {&parts_[first], step, out(first, 0), step * most_rows_ * width()});
  }

  /// Calls with_task(task) in the order in which memory lies. Heads are independent: how many of
  /// them a task takes changes no bit.
  template <class WithTask>
  void for_each_part(Index most_heads, const WithTask& with_task) const {
    for (Index i = 0; i < std::ssize(items_); ++i) {
      const Index heads = item(i).call.kv_heads, splits = places_[i].splits;
      if (splits > 1 && !item(i).keys.heads_lie_together()) {
        for (Index head = 0; head < heads; ++head)
          for (Index s = 0; s < splits; ++s) with_task(Task{i, head, 1, s});
        continue;
      }
      const Index together = std::clamp<Index>(most_heads, 1, std::max<Index>(1, heads));
      for (Index s = 0; s < splits; ++s)
        for (Index head = 0; head < heads; head += together)
          with_task(Task{i, head, std::min(together, heads - head), s});
    }
  }

  /// Joins the parts of a row in the order of their keys.
  void write_row(Index i, Index kv_head, Index r) {
    const Call& call = item(i).call;
    const Index first = first_part(i, kv_head), splits = places_[i].splits;
    const RowPlace place{item(i).item, kv_head * call.group + r / call.queries, r % call.queries};
    if (splits == 1) {
      const DecodePart& part = parts_[first];
      const RowSum row{static_cast<double>(part.reference[r]), part.sum[r], saw_key(part, r)};
      write_row_result(call, place, row, item(i).output, [&](double factor, float* to) {
        call.kernels.narrow(nullptr, out(first, r), factor, call.value_dim, to);
      });
      return;
    }
    double wide[max_dim];
    const RowSum row = join(call, first, splits, r, wide);
    write_row_result(call, place, row, item(i).output, [&](double factor, float* to) {
      for (Index c = 0; c < call.value_dim; ++c) to[c] = static_cast<float>(wide[c] * factor);
    });
  }

  static bool saw_key(const DecodePart& part, Index r) { return (part.saw_key >> r & 1) != 0; }

  RowSum join(const Call& call, Index first, Index splits, Index r, double* wide) {
    const std::span<const DecodePart> parts(parts_ + first, static_cast<std::size_t>(splits));
    RowSum row{-std::numeric_limits<double>::infinity(), 0, false};
    for (const DecodePart& part : parts) {
      row.max = std::max(row.max, static_cast<double>(part.reference[r]));
      row.saw_key |= saw_key(part, r);
    }
    std::fill_n(wide, call.value_dim, 0.0);
    for (Index i = 0; i < splits; ++i) {
      const DecodePart& part = parts[static_cast<std::size_t>(i)];
      if (part.reference[r] == minus_infinity && part.sum[r] == 0) continue;
      const double factor = std::exp2(static_cast<double>(part.reference[r]) - row.max);
      row.sum += part.sum[r] * factor;
      const float* from = out(first + i, r);
      for (Index c = 0; c < call.value_dim; ++c) wide[c] += static_cast<double>(from[c]) * factor;
    }
    return row;
  }

  const DecodeItem& item(Index i) const { return items_[static_cast<std::size_t>(i)]; }
  Index first_part(Index i, Index kv_head) const {
    return places_[i].first + kv_head * places_[i].splits;
  }
  Index width() const { return thin_width(item(0).call); }
  float* out(Index part, Index r) { return outs_ + (part * most_rows_ + r) * width(); }

  std::span<const DecodeItem> items_;
  Place one_place_;     // of a batch of one
  Buffer<Place> room_;  // of a larger batch
  Place* places_;       // of each item
  Desk desk_;
  DecodePart* parts_;
  float* outs_;  // [parts][most_rows][width]
  Index part_count_ = 0, most_rows_ = 0, bytes_ = 0;
};

}  // namespace

bool decodes(const Call& call) {
  return !call.how.strict && thin_rows_of(call) <= most_thin_rows && call.rows() > 0 &&
         !call.how.stats && !call.relative && !call.relative_values && !call.rule.has_dense() &&
         !call.rule.has_dropout();
}

std::string way_of_queries(const Call& call) {
  const auto general = [](const std::string& why) { return "as for a prompt: " + why; };
  if (call.how.strict) return general("strict was asked for");
  if (thin_rows_of(call) > most_thin_rows)
    return general(std::to_string(thin_rows_of(call)) + " query rows a key head, more than " +
                   std::to_string(most_thin_rows));
  if (!decodes(call))
    return general("statistics, a dense bias, relative keys or values, or dropout");
  const Index parts = splits_for(visited_tiles(call));
  return "short: " + std::to_string(thin_rows_of(call)) +
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
  std::byte room[1024];  // enough for a few items
  std::pmr::monotonic_buffer_resource memory(room, sizeof room);
  std::pmr::vector<OperandThinKeys> keys(&memory);
  std::pmr::vector<DecodeItem> items(&memory);
  keys.reserve(static_cast<std::size_t>(call.batch));
  items.reserve(static_cast<std::size_t>(call.batch));
  for (Index item = 0; item < call.batch; ++item)
    items.push_back({call, item, keys.emplace_back(call, item), output});
  run_decode(items, call.context);
}

}  // namespace rapt
