#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/attention.h"

// One list of attention calls drives the tests and the timing.
namespace rapt::test {

/// One attention call in words and numbers. Everything random about it follows from `seed`.
struct Case {
  Index batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, dim = 8, value_dim = 8;
  std::string layout = "bhnd";   // one of layouts(): strides of the operands
  std::string pattern = "full";  // text of a Pattern, or random(density): a dense boolean mask
  std::string scale = "sqrt";    // sqrt, dim, log_n or a number
  double softcap = 0;
  std::string bias = "none";  // parts of biases() joined with +
  bool sinks = false;
  double dropout = 0;
  std::string inputs = "normal";  // one of inputs(): what the numbers are drawn from
  std::uint64_t seed = 1;

  /// One line that parse_case turns back into this case.
  std::string repro() const;
  bool operator==(const Case&) const = default;
};

/// Fields missing from the line keep their defaults. Throws std::invalid_argument on a bad line.
Case parse_case(std::string_view line);

std::vector<std::string> layouts();
std::vector<std::string> biases();
std::vector<std::string> inputs();

/// The grid of numerics.md 1.8: all pairs of lengths, every other choice in pairwise cover.
/// Only the case of the environment variable RAPT_REPRO if it is set.
std::vector<Case> attention_cases();
/// Same-sign sums as long as rapt promises to be exact: up to 2^20 keys, and as many queries.
std::vector<Case> long_cases();
/// A case drawn from everything the grid knows, and lengths it does not.
Case random_case(std::uint64_t seed);

/// The operands of a case and the memory behind them. Gaps between rows hold NaN: who reads one
/// shows it.
struct Operands {
  explicit Operands(const Case& c);
  Operands(Operands&&) = default;
  Operands& operator=(Operands&&) = default;

  View q, k, v, dout;
  Attention how;

 private:
  void add_bias(const Case& c, const std::string& part);
  View add_table(Shape shape, double size, std::uint64_t seed);
  std::vector<std::vector<float>> memory_;
};

/// Random numbers that are the same everywhere, unlike std::normal_distribution.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  double uniform();  // [0, 1)
  double normal();
  Index below(Index n);

 private:
  std::uint64_t state_;
};

std::vector<float> normals(Index count, std::uint64_t seed);

}  // namespace rapt::test
