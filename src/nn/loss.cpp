#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/indexed_vector.h"
#include "nn/elementwise.h"
#include "nn/matmul/weight.h"
#include "nn/row_shape.h"
#include "nn/rows.h"
#include "rapt/nn/functional.h"

namespace rapt {
using namespace detail;
namespace {

/// A row whose target counts.
struct Target {
  Index row;
  std::int32_t entry;
};

/// What a row adds to the result.
struct RowLoss {
  double loss;
  std::int32_t likeliest;
};

Matrix matrix(const float* data, Index rows, Index columns) {
  return {data, Type::f32, rows, columns, columns, 1};
}

Matrix matrix(const Tensor& x) {
  return {x.memory(), x.type(), x.shape()[0], x.shape()[1], x.shape()[1], 1};
}

/// One call: chunk after chunk, logits and then their gradients in the same memory.
class LossRun {
 public:
  LossRun(Tape& tape, const Variable& x, const Parameter& head, std::vector<Target> targets,
          const CrossEntropy& how);

  TokenLoss run();
  Tensor& dx() { return dx_; }
  Tensor& dhead() { return dhead_; }
  Tensor& dbias() { return dbias_; }

 private:
  void run_chunk(Index first, Index count);
  /// The rows of x without gaps: x itself, or a copy if other rows are between them.
  const float* gathered(Index first, Index count);
  RowLoss take_row(float* logits, std::int32_t target) const;
  void add_gradients(const float* rows, Index first, Index count);

  const Context context_;
  const Tensor& x_;
  const Parameter& head_;
  const Parameter* bias_;
  const IndexedVector<Target> targets_;
  const Index vocab_size_, width_;
  const double smoothing_, divisor_;
  const Index chunk_;
  Tensor dx_, dhead_, dbias_;
  Buffer<float> logits_, rows_;
  Buffer<RowLoss> losses_;
};

LossRun::LossRun(Tape& tape, const Variable& x, const Parameter& head, std::vector<Target> targets,
                 const CrossEntropy& how)
    : context_(tape.context()),
      x_(x.value()),
      head_(head),
      bias_(how.bias),
      targets_(std::move(targets)),
      vocab_size_(head_.shape()[0]),
      width_(head_.shape()[1]),
      smoothing_(how.label_smoothing),
      divisor_(how.divisor.value_or(static_cast<double>(targets_.size()))),
      chunk_(std::min(how.chunk, static_cast<Index>(targets_.size()))),
      logits_(checked_product({chunk_, vocab_size_})),
      rows_(checked_product({chunk_, width_})),
      losses_(static_cast<Index>(targets_.size())) {
  if (!tape.records()) return;
  if (x.tracked()) dx_ = Tensor(x_.shape());
  check_trainable("cross_entropy", head);
  dhead_ = Tensor(head_.shape());
  if (bias_ != nullptr) dbias_ = Tensor(bias_->value.shape());
}

TokenLoss LossRun::run() {
  const Index count = losses_.size();
  for (Index first = 0; first < count; first += chunk_)
    run_chunk(first, std::min(chunk_, count - first));
  TokenLoss result;
  result.counted = count;
  result.likeliest.assign(to_size(x_.shape()[0]), -1);
  for (Index i = 0; i < count; ++i) {
    const Target& target = targets_[i];
    result.total += losses_[i].loss;
    result.correct += losses_[i].likeliest == target.entry ? 1 : 0;
    element(result.likeliest, target.row) = losses_[i].likeliest;
  }
  return result;
}

void LossRun::run_chunk(Index first, Index count) {
  const float* rows = gathered(first, count);
  multiply_weight(matrix(rows, count, width_), head_,
                  {.data = logits_.data(),
                   .stride = vocab_size_,
                   .bias = bias_ == nullptr ? nullptr : bias_->value.data()},
                  context_);
  for_each_row_block(context_, count, vocab_size_, [&](Index begin, Index some) {
    for (Index row = begin; row < begin + some; ++row)
      losses_[first + row] =
          take_row(logits_.data() + row * vocab_size_, targets_[first + row].entry);
  });
  if (!dhead_.empty()) add_gradients(rows, first, count);
}

const float* LossRun::gathered(Index first, Index count) {
  const Target* targets = targets_.data() + first;
  if (targets[count - 1].row - targets[0].row == count - 1)
    return x_.data() + targets[0].row * width_;
  for (Index row = 0; row < count; ++row)
    std::copy_n(x_.data() + targets[row].row * width_, width_, rows_.data() + row * width_);
  return rows_.data();
}

/// log(sum of exp(l)) - l[target], or the mix with the mean of all l that smoothing asks for; and
/// the gradient of that in the place of the logits.
RowLoss LossRun::take_row(float* logits, std::int32_t target) const {
  const NetworkKernels& kernels = network_kernels_of(context_);
  const double wanted = static_cast<double>(logits[target]);
  const float most = kernels.largest(logits, vocab_size_);
  // A NaN is nowhere the largest: then none is found, and the answer is no entry.
  const auto likeliest =
      static_cast<std::int32_t>(std::find(logits, logits + vocab_size_, most) - logits);
  const double even = smoothing_ / static_cast<double>(vocab_size_);
  const double spread = smoothing_ == 0 ? 0 : even * kernels.row_sum(logits, vocab_size_);
  const double sum = kernels.exponentials(logits, vocab_size_, most);
  if (!dhead_.empty()) {
    const double of_target = (1 - smoothing_ + even) / divisor_;
    const double p = static_cast<double>(logits[target]) / (sum * divisor_);
    kernels.affine(logits, vocab_size_, static_cast<float>(1 / (sum * divisor_)),
                   static_cast<float>(-even / divisor_));
    logits[target] = static_cast<float>(p - of_target);
  }
  return {std::log(sum) + static_cast<double>(most) - (1 - smoothing_) * wanted - spread,
          likeliest};
}

void LossRun::add_gradients(const float* rows, Index first, Index count) {
  const Matrix dlogits = matrix(logits_.data(), count, vocab_size_);
  multiply_backward(dlogits.transposed(), matrix(rows, count, width_), head_,
                    {.data = dhead_.data(), .stride = width_, .add = true}, context_);
  if (bias_ != nullptr) add_row_sums(logits_.data(), count, dbias_, context_);
  if (dx_.empty()) return;
  const bool in_place = rows != rows_.data();
  const Target* targets = targets_.data() + first;
  float* to = in_place ? dx_.data() + targets[0].row * width_ : rows_.data();
  multiply_backward(dlogits, matrix(head_.used()), head_, {.data = to, .stride = width_}, context_);
  for (Index row = 0; row < count && !in_place; ++row)
    std::copy_n(to + row * width_, width_, dx_.data() + targets[row].row * width_);
}

std::vector<Target> targets_of(const Variable& x, const Parameter& head,
                               std::span<const std::int32_t> given) {
  const RowShape shape = rows_of("cross_entropy", x);
  check(head.shape().rank() == 2 && head.shape()[1] == shape.width, "cross_entropy: ", head.name,
        " has shape ", head.shape(), ", expected [vocab_size, ", shape.width, "]");
  check(static_cast<Index>(given.size()) == shape.rows, "cross_entropy: ", given.size(),
        " targets for ", shape.rows, " rows");
  std::vector<Target> targets;
  for (std::size_t row = 0; row < given.size(); ++row) {
    check(given[row] < head.shape()[0], "cross_entropy: target ", row, " is ", given[row], ", but ",
          head.name, " has ", head.shape()[0], " rows");
    if (given[row] >= 0) targets.push_back({static_cast<Index>(row), given[row]});
  }
  return targets;
}

void check_options(const Parameter& head, const CrossEntropy& how) {
  check(how.bias == nullptr || how.bias->value.shape() == Shape{head.shape()[0]},
        "cross_entropy: bias has another shape than [", head.shape()[0], "]");
  check(how.label_smoothing >= 0 && how.label_smoothing <= 1, "cross_entropy: label_smoothing is ",
        how.label_smoothing, ", expected 0 to 1");
  const double divisor = how.divisor.value_or(1);
  check(divisor > 0 && std::isfinite(divisor), "cross_entropy: divisor is ", divisor,
        ", expected a positive number");
  check(how.chunk >= 1, "cross_entropy: chunk is ", how.chunk, ", expected at least 1");
}

}  // namespace

TokenLoss cross_entropy(Tape& tape, const Variable& x, Parameter& head,
                        std::span<const std::int32_t> targets, const CrossEntropy& how) {
  std::vector<Target> counted = targets_of(x, head, targets);
  check_options(head, how);
  const double divisor = how.divisor.value_or(static_cast<double>(counted.size()));
  Tensor value({1});
  if (counted.empty())
    return {.loss = tape.input(std::move(value)),
            .likeliest = std::vector<std::int32_t>(targets.size(), -1)};
  LossRun run(tape, x, head, std::move(counted), how);
  TokenLoss result = run.run();
  value.data()[0] = static_cast<float>(result.total / divisor);
  struct Kept {
    Tensor dx, dhead, dbias;
  };
  auto kept = std::make_shared<Kept>(
      Kept{std::move(run.dx()), std::move(run.dhead()), std::move(run.dbias())});
  result.loss = tape.record(std::move(value), [kept, slot = x.slot(), &head, bias = how.bias,
                                               context = tape.context()](Tensor dloss) {
    if (const double factor = static_cast<double>(dloss.data()[0]); factor != 1) {
      scale_in_place(kept->dx, factor, context);
      scale_in_place(kept->dhead, factor, context);
      scale_in_place(kept->dbias, factor, context);
    }
    slot.add(std::move(kept->dx));
    if (bias != nullptr) add_to(bias->gradient_or_zeros(), kept->dbias, context);
    if (head.gradient.empty()) {
      head.gradient = std::move(kept->dhead);
    } else {
      add_to(head.gradient, kept->dhead, context);
    }
  });
  return result;
}

}  // namespace rapt
