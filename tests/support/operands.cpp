#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <stdexcept>

#include "support/cases.h"

namespace rapt::test {

std::uint64_t Random::bits() {  // splitmix64
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

Index Random::below(Index n) {
  return static_cast<Index>(bits() % static_cast<std::uint64_t>(std::max<Index>(n, 1)));
}

std::vector<float> normals(Index count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

std::vector<std::string> layouts() {
  return {"bhnd", "bnhd", "fused", "odd", "misaligned", "reversed", "repeated"};
}

std::vector<std::string> biases() {
  return {"alibi",      "kerple_log",      "kerple_power", "t5",    "t5_past",
          "shaw",       "shaw_far",        "shaw_values",  "dense", "dense_row",
          "dense_keys", "shaw_values_far", "dense_inf"};
}

std::vector<std::string> inputs() {
  return {"normal", "uniform", "same_sign", "one_hot", "rank_1", "offset",
          "heavy",  "powers",  "large",     "equal",   "far"};
}

namespace {

enum class Role { q, k, v, dout };

/// One number of an operand; token and column let an input have structure.
double draw(const std::string& inputs, Role role, Random& random, Index token, Index column) {
  const bool summed = role == Role::v || role == Role::dout;  // the operands of long sums
  if (inputs == "uniform") return 2 * random.uniform() - 1;
  if (inputs == "same_sign") return summed ? 0.5 + random.uniform() : 0.1 * random.uniform();
  if (inputs == "one_hot") return random.below(8) == (token + column) % 8 ? 1 : 0;
  if (inputs == "rank_1")
    return std::sin(1.0 + static_cast<double>(token)) *
           (1.0 + 0.1 * static_cast<double>(column % 7));
  if (inputs == "offset") return random.normal() + (role == Role::k ? 10 : 0);
  if (inputs == "heavy") return std::pow(random.normal(), 3);
  if (inputs == "powers") {
    const double size = summed ? std::exp2(static_cast<double>(random.below(37) - 18)) : 1;
    return random.below(2) ? size : -size;
  }
  if (inputs == "far") {
    // Two kinds of keys far apart, the near ones with a value of 0: all of the output is far away.
    if (role == Role::q) return 1 + random.uniform();
    if (role == Role::k) return (token % 2 ? -0.4 : 0.4) * (1 + 0.5 * random.uniform());
    return role == Role::v ? static_cast<double>(token % 2) : random.normal();
  }
  if (inputs == "large") return random.normal() * (role == Role::q ? 8 : 1);
  if (inputs == "equal")
    return role == Role::k ? 0.25 * static_cast<double>(column % 3) : random.normal();
  if (inputs != "normal") throw std::invalid_argument("case: no inputs called " + inputs);
  return random.normal();
}

/// Strides of a layout and the offset of its first element.
struct Placement {
  Shape strides;
  Index first = 0, elements = 0;
};

Placement placement(const std::string& layout, const Shape& shape) {
  const Index batch = shape[0], heads = shape[1], tokens = shape[2], dim = shape[3];
  const auto whole = [&](Shape strides, Index first = 0) {
    return Placement{strides, first, first + batch * strides[0] + 8};
  };
  if (layout == "bnhd") return whole({heads * tokens * dim, dim, heads * dim, 1});
  if (layout == "fused") return whole({3 * heads * tokens * dim, dim, 3 * heads * dim, 1});
  if (layout == "odd") {
    const Index row = dim + 3 - dim % 2, head = row * tokens + 5;
    return whole({heads * head, head, row, 1});
  }
  const Index head = tokens * dim, item = heads * head;
  if (layout == "misaligned") return whole({item, head, dim, 1}, 1);
  if (layout == "reversed")
    return {{item, head, -dim, 1}, std::max<Index>(tokens - 1, 0) * dim, batch * item + dim};
  if (layout == "repeated") return {{0, head, dim, 1}, 0, item};
  if (layout != "bhnd") throw std::invalid_argument("case: no layout called " + layout);
  return whole({item, head, dim, 1});
}

View fill(std::vector<float>& memory, const Case& c, Role role, const Shape& shape) {
  const Placement place = placement(c.layout, shape);
  memory.assign(static_cast<std::size_t>(place.elements), std::numeric_limits<float>::quiet_NaN());
  float* data = memory.data() + place.first;
  Random random(c.seed * 4 + static_cast<std::uint64_t>(role));
  for (Index item = 0; item < shape[0]; ++item)
    for (Index head = 0; head < shape[1]; ++head)
      for (Index token = 0; token < shape[2]; ++token)
        for (Index column = 0; column < shape[3]; ++column)
          data[item * place.strides[0] + head * place.strides[1] + token * place.strides[2] +
               column] = static_cast<float>(draw(c.inputs, role, random, token, column));
  return View::unchecked(data, shape, place.strides);
}

Pattern pattern_of(const Case& c) {
  if (!c.pattern.starts_with("random(")) return Pattern::parse(c.pattern);
  const double density = std::stod(c.pattern.substr(7));
  Random random(c.seed + 17);
  const auto pairs = static_cast<std::size_t>(c.queries * c.keys);
  const auto may_see = std::make_unique<bool[]>(pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair) may_see[pair] = random.uniform() < density;
  return mask({may_see.get(), pairs}, c.queries, c.keys);
}

Scale scale_of(const Case& c) {
  if (c.scale == "sqrt") return Scale::inverse_sqrt_dim();
  if (c.scale == "dim") return Scale::inverse_dim();
  if (c.scale == "log_n") return Scale::log_n();
  return Scale::value(std::stod(c.scale));
}

}  // namespace

Operands::Operands(const Case& c) : memory_(4) {
  q = fill(memory_[0], c, Role::q, {c.batch, c.heads, c.queries, c.dim});
  k = fill(memory_[1], c, Role::k, {c.batch, c.kv_heads, c.keys, c.dim});
  v = fill(memory_[2], c, Role::v, {c.batch, c.kv_heads, c.keys, c.value_dim});
  dout = fill(memory_[3], c, Role::dout, {c.batch, c.heads, c.queries, c.value_dim});
  how.pattern = pattern_of(c);
  how.scale = scale_of(c);
  if (c.softcap > 0) how.softcap = c.softcap;
  how.dropout = {c.dropout, c.seed};
  if (c.sinks) how.sinks = normals(c.heads, c.seed + 23);
  for (std::size_t begin = 0; c.bias != "none" && begin <= c.bias.size();) {
    const std::size_t end = std::min(c.bias.find('+', begin), c.bias.size());
    add_bias(c, c.bias.substr(begin, end - begin));
    begin = end + 1;
  }
}

View Operands::add_table(Shape shape, double size, std::uint64_t seed) {
  std::vector<float>& numbers = memory_.emplace_back(normals(shape.elements(), seed));
  for (float& number : numbers) number *= static_cast<float>(size);
  return View::unchecked(numbers.data(), shape, shape.row_major());
}

void Operands::add_bias(const Case& c, const std::string& part) {
  const auto dense = [&](Shape shape) {
    how.bias = how.bias + dense_bias(add_table(shape, 1, c.seed + 29));
  };
  const auto positive = [&](std::uint64_t seed) {  // 0.01 to 2
    std::vector<float> numbers;
    Random random(seed);
    for (Index head = 0; head < c.heads; ++head)
      numbers.push_back(static_cast<float>(0.01 + 1.99 * random.uniform()));
    return numbers;
  };
  if (part == "kerple_log") {
    how.bias = how.bias + kerple_log(positive(c.seed + 43), positive(c.seed + 47));
  } else if (part == "kerple_power") {
    how.bias = how.bias + kerple_power(positive(c.seed + 43), positive(c.seed + 47));
  } else if (part == "alibi") {
    how.bias = how.bias + alibi(c.heads);
  } else if (part == "t5") {
    how.bias = how.bias + t5_bias(add_table({32, c.heads}, 1, c.seed + 31));
  } else if (part == "t5_past") {
    how.bias = how.bias + t5_bias(add_table({12, c.heads}, 1, c.seed + 31), 40,
                                  RelativeTable::Direction::past);
  } else if (part == "shaw") {
    how.bias = how.bias + relative_keys(add_table({9, c.dim}, 0.5, c.seed + 37));
  } else if (part == "shaw_far") {
    how.bias = how.bias + relative_keys(add_table({301, c.dim}, 0.5, c.seed + 37));
  } else if (part == "shaw_values") {
    how.relative_values = add_table({9, c.value_dim}, 0.5, c.seed + 53);
  } else if (part == "shaw_values_far") {
    how.relative_values = add_table({301, c.value_dim}, 0.5, c.seed + 53);
  } else if (part == "dense") {
    dense({c.batch, c.heads, c.queries, c.keys});
  } else if (part == "dense_row") {
    dense({1, c.heads, c.queries, 1});
  } else if (part == "dense_keys") {
    dense({c.batch, 1, 1, c.keys});
  } else if (part == "dense_inf") {
    dense({1, 1, c.queries, c.keys});
    Random random(c.seed + 41);
    for (float& number : memory_.back())
      if (random.uniform() < 0.3) number = -std::numeric_limits<float>::infinity();
  } else {
    throw std::invalid_argument("case: no bias called " + part);
  }
}

}  // namespace rapt::test
