#include "attention/decode/decode.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory_resource>

#include "attention/cache/cached_keys.h"
#include "attention/decode/decode_worker.h"
#include "attention/forward/row_result.h"
#include "base/indexed_vector.h"
#include "base/numerics.h"

namespace rapt::detail {
namespace {

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

/// The results of all tasks of a call, and how they are joined.
class DecodeRun {
 public:
  explicit DecodeRun(std::span<const DecodeItem> items)
      : items_(items), places_(allocate_places(items)) {
    for (Index i = 0; i < std::ssize(items); ++i) {
      const Call& call = item(i).call;
      const Index tiles = visited_tiles(call);
      most_rows_ = std::max(most_rows_, rows_per_kv_head(call));
      bytes_ +=
          std::min(tiles * tile, call.keys) * call.kv_heads * item(i).keys.tile_bytes() / tile;
      places_[i] = {part_count_, splits_for(tiles)};
      part_count_ += call.kv_heads * places_[i].splits;
    }
    const Index outs = checked_product({part_count_, most_rows_, width()});
    scratch_.reset(Scratch::bytes_of<DecodePart>(part_count_) + Scratch::bytes_of<float>(outs));
    parts_ = scratch_.allocate<DecodePart>(part_count_);
    outs_ = scratch_.allocate<float>(outs);
  }

  void compute(const Context& context) {
    if (bytes_ < bytes_worth_threads) {
      DecodeWorker worker;
      for_each_part(std::numeric_limits<Index>::max(),
                    [&](const Task& task) { run(worker, task); });
      return;
    }
    IndexedVector<Task> tasks;
    for_each_part(part_count_ / (tasks_each * worker_count(context)),
                  [&](const Task& task) { tasks.push_back(task); });
    Workers<DecodeWorker> all(context);
    for_each_task_at_home(context, std::ssize(tasks),
                          [&](Index index, Index worker) { run(all.get(worker), tasks[index]); });
  }

  void write() {
    for (Index i = 0; i < std::ssize(items_); ++i)
      for (Index head = 0; head < item(i).call.kv_heads; ++head)
        for (Index r = 0; r < rows_per_kv_head(item(i).call); ++r) write_row(i, head, r);
  }

 private:
  struct Task {
    Index item, first_head, heads, split;
  };

  /// Where the parts of an item begin, [kv_heads][splits].
  struct Place {
    Index first, splits;
  };

  Place* allocate_places(std::span<const DecodeItem> items) {
    if (items.size() == 1) return &one_place_;
    more_places_ = Buffer<Place>(std::ssize(items));
    return more_places_.data();
  }

  void run(DecodeWorker& worker, const Task& task) {
    const Index step = places_[task.item].splits;
    const Index first = first_part(task.item, task.first_head) + task.split;
    worker.run({item(task.item), task.first_head, task.heads, task.split * split_tiles,
                (task.split + 1) * split_tiles},
               {&parts_[first], step, out(first, 0), step * most_rows_ * width()});
  }

  /// Calls with_task(task) in the order of memory. Heads are independent: how many of them a task
  /// takes changes no bit.
  template <class WithTask>
  void for_each_part(Index most_heads, const WithTask& with_task) const {
    for (Index i = 0; i < std::ssize(items_); ++i) {
      const Index heads = item(i).call.kv_heads, splits = places_[i].splits;
      if (splits > 1 && !item(i).keys.heads_are_adjacent()) {
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
      const RowSum row{static_cast<double>(part.running_max[r]), part.sum[r], saw_key(part, r)};
      write_row_result(call, place, row, item(i).output, [&](double factor, float* to) {
        call.kernels.vectors.narrow(nullptr, out(first, r), factor, call.value_dim, to);
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
    const std::span<const DecodePart> parts(parts_ + first, parts_ + first + splits);
    RowSum row{-std::numeric_limits<double>::infinity(), 0, false};
    for (const DecodePart& part : parts) {
      row.max = std::max(row.max, static_cast<double>(part.running_max[r]));
      row.saw_key |= saw_key(part, r);
    }
    std::fill_n(wide, call.value_dim, 0.0);
    for (Index i = 0; i < splits; ++i) {
      const DecodePart& part = element(parts, i);
      if (part.running_max[r] == minus_infinity && part.sum[r] == 0) continue;
      const double factor = std::exp2(static_cast<double>(part.running_max[r]) - row.max);
      row.sum += part.sum[r] * factor;
      const float* from = out(first + i, r);
      for (Index c = 0; c < call.value_dim; ++c) wide[c] += static_cast<double>(from[c]) * factor;
    }
    return row;
  }

  const DecodeItem& item(Index i) const { return element(items_, i); }
  Index first_part(Index i, Index kv_head) const {
    return places_[i].first + kv_head * places_[i].splits;
  }
  Index width() const { return decode_width(item(0).call); }
  float* out(Index part, Index r) { return outs_ + (part * most_rows_ + r) * width(); }

  std::span<const DecodeItem> items_;
  Place one_place_;            // of a batch of one
  Buffer<Place> more_places_;  // of a larger batch
  Place* places_;              // of each item
  Scratch scratch_;
  DecodePart* parts_;
  float* outs_;  // [parts][most_rows][width]
  Index part_count_ = 0, most_rows_ = 0, bytes_ = 0;
};

/// The calls of some jobs, their keys and their batch items.
class DecodeBatch {
 public:
  explicit DecodeBatch(std::span<const Job> jobs)
      : memory_(inside_, sizeof inside_),
        calls_(&memory_),
        operands_(&memory_),
        cached_(&memory_),
        items_(&memory_) {
    Index count = 0;
    for (const Job& job : jobs) count += job.request.q.batch();
    items_.reserve(to_size(count));
    if (jobs.front().request.cached) {
      cached_.reserve(jobs.size());
    } else {
      operands_.reserve(to_size(count));
    }
    for (const Job& job : jobs) add(job);
  }

  std::span<const DecodeItem> items() const { return items_; }

 private:
  void add(const Job& job) {
    const Call& call = calls_.emplace_back(job.request);
    if (job.request.cached) {
      const auto& [options, cache, tokens, number] = *job.request.cached;
      check_visits(job.request.where, *cache, *tokens, *call.plan);
      items_.push_back({call, 0, cached_.emplace_back(*cache, *tokens), job.output});
      return;
    }
    for (Index item = 0; item < call.batch; ++item)
      items_.push_back({call, item, operands_.emplace_back(call, item), job.output});
  }

  std::byte inside_[2048];  // enough for an item or two
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::deque<Call> calls_;  // none of them moves
  std::pmr::vector<RowKeys> operands_;
  std::pmr::vector<PageKeys> cached_;
  std::pmr::vector<DecodeItem> items_;
};

/// Whether full pages are multiplied as they are stored.
bool attends_int8_pages(const Call& call, const Request& request) {
  return request.cached && !call.score_rule.has_softcap() && !call.score_rule.has_diagonal() &&
         multiplies_int8(request.cached->options.type, call.kernels);
}

}  // namespace

void run_decode(std::span<const Job> jobs) {
  const DecodeBatch batch(jobs);
  DecodeRun run(batch.items());
  run.compute(jobs.front().request.context);
  run.write();
}

std::string describe_decode(const Request& request) {
  const Call call(request);
  const Index parts = splits_for(visited_tiles(call));
  return "kernel    f32 over keys and values where they are, exact online softmax\nwork      " +
         std::to_string(rows_per_kv_head(call)) +
         " query rows of a key head together, its keys in " + std::to_string(parts) + " part" +
         (parts == 1 ? "" : "s") + " joined in order" +
         (attends_int8_pages(call, request) ? ", full pages multiplied as int8" : "") + "\n";
}

}  // namespace rapt::detail
