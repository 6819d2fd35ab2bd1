#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rapt/attention.h"

namespace rapt::cli {

/// One attention call as the command line names it.
struct Case {
  std::string name;
  std::string pattern = "full";
  Index tokens = 0;
  std::optional<Index> queries = {};  // none: as many as tokens
  Index batch = 1;
  Index heads = 8;
  std::optional<Index> kv_heads = {};  // none: as many as heads
  Index dim = 64;
  std::optional<Index> value_dim = {};     // none: dim
  std::string scale = "inverse_sqrt_dim";  // a name or a number
  std::optional<std::string> bias = {};    // the function that makes it: "t5_bias"
  std::optional<double> softcap = {};
  double dropout = 0;
  bool sinks = false;
  bool stats = false;
  std::string dtype = "f32";

  Lengths lengths() const { return {queries.value_or(tokens), tokens}; }
  Shape q_shape() const { return {batch, heads, lengths().queries, dim}; }
  Shape k_shape() const { return {batch, kv_heads.value_or(heads), tokens, dim}; }
  Shape v_shape() const {
    return {batch, kv_heads.value_or(heads), tokens, value_dim.value_or(dim)};
  }
  Shape out_shape() const { return {batch, heads, lengths().queries, v_shape()[3]}; }
};

enum class Pass { forward, backward };

/// 2 flops per multiply-add of the products: q·k and p·v forward, five products backward.
double flops_of(const Case& c, Index pairs, Pass pass);

/// The options of a case, the same for every command that takes one. --tokens is left to the
/// caller.
void add_case_options(CLI::App& command, Case& c);

/// Only --heads, --kv-heads and --dim.
void add_shape_options(CLI::App& command, Case& c);

/// Normal-ish random numbers, a function of shape and seed alone but for their rounding.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, Type type = Type::f32);

/// The learnable part of a case's bias and the rule that refers to it.
struct Rule {
  Tensor bias_values;
  Attention how;
};

/// Throws std::invalid_argument if the case names something that does not exist.
Rule rule_of(const Case& c);

}  // namespace rapt::cli
