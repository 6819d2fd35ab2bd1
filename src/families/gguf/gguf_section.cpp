#include "families/gguf/gguf_section.h"

#include <charconv>
#include <cmath>

#include "base/io/check_input.h"

namespace rapt::detail {

Index GgufSection::integer(const char* of, Bounds<Index> range) const {
  const Index number = file_.metadata().integer(key(of));
  if (number < range.lowest || number > range.highest)
    fail_input(file_.path(), ": ", key(of), " is ", number, ", expected ", range.lowest, " to ",
               range.highest);
  return number;
}

Index GgufSection::integer(const char* of, Bounds<Index> range, Index otherwise) const {
  return has(of) ? integer(of, range) : otherwise;
}

double GgufSection::number(const char* of, double otherwise, Bounds<double> range) const {
  const double number = has(of) ? file_.metadata().number(key(of)) : otherwise;
  if (!std::isfinite(number)) fail_input(file_.path(), ": ", key(of), " is not a finite number");
  if (number < range.lowest || number > range.highest)
    fail_input(file_.path(), ": ", key(of), " is ", number, ", expected ", range.lowest, " to ",
               range.highest);
  return number;
}

double GgufSection::decimal(const char* of, Bounds<double> range) const {
  const double given = number(of, file_.metadata().number(key(of)), range);
  if (static_cast<double>(static_cast<float>(given)) != given) return given;
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(given));
  double read = given;
  std::from_chars(digits, end.ptr, read);
  return read;
}

void GgufSection::must_be(const char* of, double value) const {
  if (has(of) && number(of, value) != value)
    fail_input(file_.path(), ": ", key(of), " is not ", value, "; nothing else is computed here");
}

Index gguf_vocabulary(const GgufFile& file) {
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2)
    fail_input(file.path(), ": there is no matrix token_embd.weight");
  return embedding->shape[0];
}

void read_gguf_sizes(const GgufSection& section, ModelConfig& config) {
  config.positions = ModelConfig::Positions::learned;
  config.vocab_size = gguf_vocabulary(section.file());
  config.hidden_size = section.integer("embedding_length", size_bounds);
  config.layers = section.integer("block_count", layer_counts);
  config.heads = section.integer("attention.head_count", {1, 100000});
  config.intermediate_size = section.integer("feed_forward_length", size_bounds);
  config.max_positions = section.integer("context_length", size_bounds);
  config.norm_epsilon = section.decimal("attention.layer_norm_epsilon", {1e-30, 1});
  section.must_be("attention.head_count_kv", static_cast<double>(config.heads));
  for (const char* length : {"attention.key_length", "attention.value_length"})
    section.must_be(length, static_cast<double>(config.dim()));
}

}  // namespace rapt::detail
