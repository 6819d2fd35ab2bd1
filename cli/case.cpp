#include "cli/case.h"

#include <charconv>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "cli/console/output.h"

namespace rapt::cli {
namespace {

/// splitmix64: enough for data whose only job is to look like data.
std::uint64_t hash(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Sum of four uniform numbers, variance 1.
float normalish(std::uint64_t bits) {
  int sum = -2 * 65535;
  for (; bits != 0; bits >>= 16) sum += static_cast<int>(bits & 65535);
  return static_cast<float>(sum) * (1.7320508F / 65535);
}

/// Values of --scale in rapt 0.1.
constexpr std::pair<std::string_view, std::string_view> renamed_scales[] = {
    {"sqrt", "inverse_sqrt_dim"}, {"dim", "inverse_dim"}};
/// Those of --bias.
constexpr std::pair<std::string_view, std::string_view> renamed_biases[] = {
    {"kerple", "kerple_log"},
    {"t5", "t5_bias"},
    {"dense", "dense_bias"},
    {"relative-keys", "relative_keys"}};

Scale scale_of(const std::string& text) {
  if (text == "inverse_sqrt_dim") return Scale::inverse_sqrt_dim();
  if (text == "inverse_dim") return Scale::inverse_dim();
  if (text == "none") return Scale::none();
  if (text == "log_n") return Scale::log_n();
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end)
    throw std::invalid_argument(fmt::format(
        "--scale is \"{}\", expected inverse_sqrt_dim, inverse_dim, none, log_n or a number",
        text));
  return Scale::value(value);
}

/// Refuses the old names of values with the new ones.
CLI::Validator not_renamed(std::span<const std::pair<std::string_view, std::string_view>> names) {
  return CLI::Validator(
      [names](const std::string& value) {
        for (const auto& [old_name, now] : names)
          if (value == old_name) return fmt::format("{} is called {} now", value, now);
        return std::string();
      },
      "");
}

constexpr Index t5_buckets = 32;
constexpr Index relative_reach = 64;

Shape bias_shape(const Case& c) {
  if (c.bias == "t5_bias") return {t5_buckets, c.heads};
  if (c.bias == "relative_keys") return {2 * relative_reach + 1, c.dim};
  if (c.bias == "dense_bias") return {1, 1, c.lengths().queries, c.lengths().keys};
  return {};
}

Bias bias_of(const Case& c, View values) {
  const std::vector<float> ones(static_cast<std::size_t>(c.heads), 1.0F);
  if (c.bias == "alibi") return alibi(c.heads);
  if (c.bias == "kerple_log") return kerple_log(ones, ones);
  if (c.bias == "kerple_power") return kerple_power(ones, ones);
  if (c.bias == "t5_bias") return t5_bias(values);
  if (c.bias == "relative_keys") return relative_keys(values);
  if (c.bias == "dense_bias") return dense_bias(values);
  return {};
}

}  // namespace

double flops_of(const Case& c, Index pairs, Pass pass) {
  const double dim = static_cast<double>(c.dim);
  const double value_dim = static_cast<double>(c.v_shape()[3]);
  const double per_pair =
      pass == Pass::forward ? 2 * (dim + value_dim) : 2 * (3 * dim + 2 * value_dim);
  return per_pair * static_cast<double>(pairs) * static_cast<double>(c.heads * c.batch);
}

void add_shape_options(CLI::App& command, Case& c) {
  command.add_option("--heads", c.heads, "Query heads")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--kv-heads", c.kv_heads, "Key and value heads (default: as many as heads)")
      ->check(whole_number(1));
  command.add_option("--dim", c.dim, "Dimension of queries and keys")
      ->check(whole_number(1))
      ->capture_default_str();
}

void add_case_options(CLI::App& command, Case& c) {
  command.add_option("--pattern", c.pattern, "Attention pattern, as in \"window(512, 0)\"");
  command.add_option("--queries", c.queries, "Number of queries (default: as many as tokens)")
      ->check(whole_number(1));
  command.add_option("--batch", c.batch, "Batch items")
      ->check(whole_number(1))
      ->capture_default_str();
  add_shape_options(command, c);
  command.add_option("--value-dim", c.value_dim, "Dimension of values (default: as dim)")
      ->check(whole_number(1));
  command.add_option("--scale", c.scale, "inverse_sqrt_dim, inverse_dim, none, log_n or a number")
      ->check(not_renamed(renamed_scales))
      ->capture_default_str();
  command.add_option("--softcap", c.softcap, "Cap of the logits: c * tanh(logit / c)")
      ->capture_default_str();
  command.add_option("--bias", c.bias, "What is added to the logits (default: nothing)")
      ->check(not_renamed(renamed_biases))
      ->check(CLI::IsMember(
          {"alibi", "kerple_log", "kerple_power", "t5_bias", "dense_bias", "relative_keys"}));
  command.add_option("--dropout", c.dropout, "Rate of dropped probabilities")
      ->capture_default_str();
  command.add_flag("--sinks", c.sinks, "Give each head a learned sink");
  command.add_option("--dtype", c.dtype, "Type of queries, keys, values and output")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command.add_flag("--stats", c.stats, "Also measure what attention does");
}

namespace {

template <class T>
void fill_random(std::span<T> numbers, std::uint64_t seed) {
  std::uint64_t counter = hash(seed);
  for (T& x : numbers) x = T(normalish(hash(counter++)));
}

}  // namespace

Tensor random_tensor(const Shape& shape, std::uint64_t seed, Type type) {
  Tensor tensor(shape, type);
  if (type == Type::f32) fill_random(tensor.numbers(), seed);
  if (type == Type::bf16) fill_random(tensor.numbers<Bf16>(), seed);
  if (type == Type::f16) fill_random(tensor.numbers<F16>(), seed);
  return tensor;
}

Rule rule_of(const Case& c) {
  Rule rule{random_tensor(bias_shape(c), 17), {}};
  rule.how = {.pattern = Pattern::parse(c.pattern),
              .scale = scale_of(c.scale),
              .softcap = c.softcap,
              .bias = bias_of(c, rule.bias_values),
              .sinks = std::vector<float>(c.sinks ? static_cast<std::size_t>(c.heads) : 0),
              .dropout = {c.dropout, 1},
              .stats = c.stats};
  return rule;
}

}  // namespace rapt::cli
