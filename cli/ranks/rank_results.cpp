#include "cli/ranks/rank_results.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rapt::cli {
namespace {

using namespace distributed;

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.memory()),
          static_cast<std::size_t>(tensor.elements()) * size_of(tensor.type())};
}

/// The distance between 1 and the next number.
double epsilon_of(Type type) {
  if (type == Type::bf16) return 0x1p-7;
  return type == Type::f16 ? 0x1p-10 : 0x1p-23;
}

double row_difference(const float* got, const float* want, Index dim) {
  double most = 0, largest = 0;
  for (Index i = 0; i < dim; ++i) {
    most = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    largest = std::max(largest, std::abs(static_cast<double>(want[i])));
  }
  return most == 0 ? 0 : most / std::max(largest, 1e-30);
}

void compare(const Tensor& got, const Tensor& want, RankDifference& difference) {
  if (got.elements() == 0) return;
  if (std::memcmp(got.memory(), want.memory(), bytes_of(want).size()) == 0) return;
  difference.same_bits = false;
  const Tensor x = got.converted(Type::f32), y = want.converted(Type::f32);
  const Index dim = y.shape()[3];
  for (Index row = 0; row < y.elements() / dim; ++row)
    difference.ulps =
        std::max(difference.ulps, row_difference(x.data() + row * dim, y.data() + row * dim, dim) /
                                      epsilon_of(want.type()));
}

/// Rank after rank sends its part to rank 0. Tensors are those of tokens.
void compare_tensors(Communicator& communicator, const Tensor& got, const Tensor* want,
                     const Placement& placement, RankDifference& difference) {
  if (got.empty()) return;
  if (communicator.rank() != 0) {
    wait(communicator, *communicator.send(0, 0, bytes_of(got)));
    return;
  }
  compare(got, shard(*want, placement, 0), difference);
  for (Index rank = 1; rank < communicator.size(); ++rank) {
    const Tensor part = shard(*want, placement, rank);
    Tensor other = Tensor::uninitialized(part.shape(), part.type());
    const std::span<std::byte> bytes{static_cast<std::byte*>(other.memory()),
                                     bytes_of(other).size()};
    wait(communicator, *communicator.receive(rank, 0, bytes));
    compare(other, part, difference);
  }
}

}  // namespace

RankDifference compare_results(Communicator& communicator, const RankResults& got,
                               const std::optional<RankResults>& want, const Placement& placement) {
  RankDifference difference;
  compare_tensors(communicator, got.out, want ? &want->out : nullptr, placement, difference);
  for (Tensor Gradients::*gradient : {&Gradients::dq, &Gradients::dk, &Gradients::dv})
    compare_tensors(communicator, got.gradients.*gradient,
                    want ? &(want->gradients.*gradient) : nullptr, placement, difference);
  return difference;
}

std::vector<RankSamples> gather_samples(Communicator& communicator, const RankSamples& mine) {
  const std::size_t repeats = mine.time_ms.size(), fields = 2 * repeats + 1;
  std::vector<double> numbers = mine.time_ms;
  numbers.insert(numbers.end(), mine.waited_ms.begin(), mine.waited_ms.end());
  numbers.push_back(static_cast<double>(mine.bytes_sent));
  std::vector<double> all(fields * static_cast<std::size_t>(communicator.size()));
  all_gather(communicator, std::as_bytes(std::span(numbers)),
             std::as_writable_bytes(std::span(all)));
  std::vector<RankSamples> samples;
  for (auto at = all.begin(); at != all.end(); at += static_cast<std::ptrdiff_t>(fields)) {
    const auto waited = at + static_cast<std::ptrdiff_t>(repeats);
    const auto bytes = waited + static_cast<std::ptrdiff_t>(repeats);
    samples.push_back({{at, waited}, {waited, bytes}, {}, static_cast<Index>(*bytes)});
  }
  samples.front().one_rank_ms = mine.one_rank_ms;
  return samples;
}

}  // namespace rapt::cli
