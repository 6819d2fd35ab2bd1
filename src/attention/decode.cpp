#include "attention/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/decode_worker.h"
#include "attention/row_result.h"

namespace rapt {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
/// Key tiles of one task: short enough to share out, long enough to be worth a task, and no longer
/// than f32 sums may grow.
constexpr Index split_tiles = 16;
/// Calls that read less than this are over before another thread has woken up.
constexpr Index bytes_worth_threads = Index{256} << 10;
/// Tasks for each thread, if there are as many: enough to balance, few enough to read long runs.
constexpr Index tasks_each = 8;

Index visited_tiles(const Call& call) {
  Index count = 0;
  if (call.queries > 0)
    for (const Visit& visit : call.plan->visits(0)) count += visit.count;
  return count;
}

/// What all tasks of a call found out, and how it is put together.
class DecodeRun {
 public:
  DecodeRun(std::span<const DecodeItem> items, Index threads) : items_(items) {
    Index parts = 0;
    for (const DecodeItem& item : items) {
      most_rows_ = std::max(most_rows_, thin_rows_of(item.call));
      bytes_ += visited_tiles(item.call) * item.call.kv_heads * item.keys.tile_bytes();
      first_parts_.push_back(parts);
      parts += item.call.kv_heads * splits_of(item.call);
    }
    parts_.resize(static_cast<std::size_t>(parts));
    outs_ = Buffer<float>(checked_product({parts, most_rows_, width()}));
    for (Index i = 0; i < std::ssize(items); ++i) add_tasks(i, parts / (tasks_each * threads));
  }

  void compute(const Context& context) {
    if (bytes_ < bytes_worth_threads) {
      DecodeWorker worker;
      for (const Task& task : tasks_) run(worker, task);
      return;
    }
    Crew<DecodeWorker> crew(context);
    for_each_task_at_home(context, std::ssize(tasks_), [&](Index index, Index worker) {
      run(crew.get(worker), tasks_[static_cast<std::size_t>(index)]);
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

  void run(DecodeWorker& worker, const Task& task) {
    const Index step = splits_of(item(task.item).call);
    const Index first = first_part(task.item, task.first_head) + task.split;
    worker.run({item(task.item), task.first_head, task.heads, task.split * split_tiles,
                (task.split + 1) * split_tiles},
               {&parts_[static_cast<std::size_t>(first)], step, out(first, 0),
                step * most_rows_ * width()});
  }

  static Index splits_of(const Call& call) {
    return std::max<Index>(1, divide_up(visited_tiles(call), split_tiles));
  }

  /// In the order in which memory lies. Heads are independent: how many of them a task takes
  /// changes no bit.
  void add_tasks(Index i, Index most_heads) {
    const Call& call = item(i).call;
    if (!item(i).keys.heads_lie_together()) {
      for (Index head = 0; head < call.kv_heads; ++head)
        for (Index s = 0; s < splits_of(call); ++s) tasks_.push_back({i, head, 1, s});
      return;
    }
    const Index together = std::clamp<Index>(most_heads, 1, std::max<Index>(1, call.kv_heads));
    for (Index s = 0; s < splits_of(call); ++s)
      for (Index head = 0; head < call.kv_heads; head += together)
        tasks_.push_back({i, head, std::min(together, call.kv_heads - head), s});
  }

  /// Joins the parts of a row in the order of their keys.
  void write_row(Index i, Index kv_head, Index r) {
    const Call& call = item(i).call;
    const Index first = first_part(i, kv_head), splits = splits_of(call);
    const RowPlace place{item(i).item, kv_head * call.group + r / call.queries, r % call.queries};
    if (splits == 1) {
      const DecodePart& part = parts_[static_cast<std::size_t>(first)];
      const RowSum row{static_cast<double>(part.reference[r]), part.sum[r], saw_key(part, r)};
      write_row_result(call, place, row, item(i).output,
                       [&](double factor, float* to) { scale(call, out(first, r), factor, to); });
      return;
    }
    double wide[max_dim];
    const RowSum row = join(call, first, splits, r, wide);
    write_row_result(call, place, row, item(i).output,
                     [&](double factor, float* to) { scale(call, wide, factor, to); });
  }

  template <class Number>
  static void scale(const Call& call, const Number* from, double factor, float* to) {
    for (Index c = 0; c < call.value_dim; ++c)
      to[c] = static_cast<float>(static_cast<double>(from[c]) * factor);
  }

  static bool saw_key(const DecodePart& part, Index r) { return (part.saw_key >> r & 1) != 0; }

  RowSum join(const Call& call, Index first, Index splits, Index r, double* wide) {
    const std::span<const DecodePart> parts(parts_.data() + first,
                                            static_cast<std::size_t>(splits));
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
    return first_parts_[static_cast<std::size_t>(i)] + kv_head * splits_of(item(i).call);
  }
  Index width() const { return thin_width(item(0).call); }
  float* out(Index part, Index r) { return outs_.data() + (part * most_rows_ + r) * width(); }

  std::span<const DecodeItem> items_;
  std::vector<Task> tasks_;
  std::vector<Index> first_parts_;  // of each item: [kv_heads][splits]
  std::vector<DecodePart> parts_;
  Buffer<float> outs_;  // [parts][most_rows][width]
  Index most_rows_ = 0, bytes_ = 0;
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
  const Index parts = std::max<Index>(1, divide_up(visited_tiles(call), split_tiles));
  return "short: " + std::to_string(thin_rows_of(call)) +
         " query rows of a key head side by side, its keys in " + std::to_string(parts) + " part" +
         (parts == 1 ? "" : "s") + " joined in order";
}

void run_decode(std::span<const DecodeItem> items, const Context& context) {
  if (items.empty()) return;
  DecodeRun run(items, workers(context));
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
