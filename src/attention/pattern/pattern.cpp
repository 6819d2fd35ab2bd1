#include "rapt/pattern.h"

#include <algorithm>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/indexed_vector.h"

namespace rapt {
using namespace detail;

namespace {

using Nodes = std::vector<std::shared_ptr<const Pattern::Node>>;

Index height_above(const Nodes& operands) {
  Index height = 0;
  for (const auto& operand : operands) height = std::max(height, operand->height());
  return height + 1;
}

/// What `&` and `|` have in common: everything but the set operation.
class Operator : public Pattern::Node {
 public:
  Operator(Binding binding, Nodes operands)
      : binding_(binding), height_(height_above(operands)), operands_(std::move(operands)) {}

  void fit(Lengths lengths) const override {
    for (const auto& operand : operands_) operand->fit(lengths);
  }

  std::shared_ptr<const Node> among(Index keys) const override {
    std::vector<Pattern> parts;
    bool changed = false;
    for (const auto& operand : operands_) {
      const std::shared_ptr<const Node> other = operand->among(keys);
      changed |= other != nullptr;
      parts.push_back(pattern_of(other == nullptr ? operand : other));
    }
    return changed ? node_of(join(binding_, parts)) : nullptr;
  }

  void write(std::string& text) const override {
    const std::string_view sign = binding_ == Binding::both ? " & " : " | ";
    std::string_view between;
    for (const auto& operand : operands_) {
      text += between;
      write_operand(*operand, text);
      between = sign;
    }
  }

  bool equals(const Node& other) const override {
    const auto* same = dynamic_cast<const Operator*>(&other);
    return same != nullptr && same->binding_ == binding_ &&
           std::equal(operands_.begin(), operands_.end(), same->operands_.begin(),
                      same->operands_.end(),
                      [](const auto& a, const auto& b) { return a == b || a->equals(*b); });
  }

  Binding binding() const override { return binding_; }
  Index height() const override { return height_; }
  bool has_lsh() const override {
    return std::any_of(operands_.begin(), operands_.end(),
                       [](const auto& operand) { return operand->has_lsh(); });
  }
  const Nodes& operands() const { return operands_; }

 protected:
  // Operands are lower than their operator, so buffers numbered by height never meet.
  Ranges& buffer(std::span<Ranges> scratch, Index number) const {
    return element(scratch, buffers_per_level * (height_ - 1) + number);
  }

 private:
  void write_operand(const Node& operand, std::string& text) const {
    const bool parentheses = operand.binding() < binding_;
    if (parentheses) text += '(';
    operand.write(text);
    if (parentheses) text += ')';
  }

  Binding binding_;
  Index height_;
  Nodes operands_;
};

class Both final : public Operator {
 public:
  explicit Both(Nodes operands) : Operator(Binding::both, std::move(operands)) {}

  void keys_of(const QueryPosition& at, std::span<Ranges> scratch, Ranges& out) const override {
    Ranges& next = buffer(scratch, 0);
    Ranges& common = buffer(scratch, 1);
    operands().front()->keys_of(at, scratch, out);
    for (auto operand = operands().begin() + 1; operand != operands().end(); ++operand) {
      if (out.empty()) return;
      (*operand)->keys_of(at, scratch, next);
      intersect(out, next, common);
      out.swap(common);
    }
  }

  std::optional<Range> range_of(const QueryPosition& at) const override {
    Range range{0, at.keys};
    for (const auto& operand : operands()) {
      const std::optional<Range> next = operand->range_of(at);
      if (!next) return std::nullopt;
      range = shared(range, *next);
    }
    return range;
  }
};

class Either final : public Operator {
 public:
  explicit Either(Nodes operands) : Operator(Binding::either, std::move(operands)) {}

  void keys_of(const QueryPosition& at, std::span<Ranges> scratch, Ranges& out) const override {
    Ranges& next = buffer(scratch, 0);
    if (operands().size() == 2) {
      Ranges& first = buffer(scratch, 1);
      operands().front()->keys_of(at, scratch, first);
      operands().back()->keys_of(at, scratch, next);
      return unite(first, next, out);
    }
    // Merging one by one would cost the square of the number of operands.
    out.clear();
    for (const auto& operand : operands()) {
      operand->keys_of(at, scratch, next);
      out.insert(out.end(), next.begin(), next.end());
    }
    normalize(out);
  }
};

/// The operands of one flat list: an operand with the same operator gives its own.
Nodes flatten(Binding binding, std::span<const Pattern> parts) {
  Nodes operands;
  for (const Pattern& part : parts) {
    if (node_of(part)->binding() == binding) {
      const Nodes& inner = static_cast<const Operator&>(*node_of(part)).operands();
      operands.insert(operands.end(), inner.begin(), inner.end());
    } else {
      operands.push_back(node_of(part));
    }
  }
  return operands;
}

}  // namespace

Pattern detail::join(Binding binding, std::span<const Pattern> parts) {
  if (parts.size() == 1) return parts.front();
  Nodes operands = flatten(binding, parts);
  check(height_above(operands) <= Pattern::Node::max_height,
        "pattern is too deep: & and | alternate over more than ", Pattern::Node::max_height,
        " levels");
  if (binding == Binding::both)
    return pattern_of(std::make_shared<const Both>(std::move(operands)));
  return pattern_of(std::make_shared<const Either>(std::move(operands)));
}

Pattern detail::among(const Pattern& pattern, Index keys) {
  const std::shared_ptr<const Pattern::Node> node = node_of(pattern)->among(keys);
  return node == nullptr ? pattern : pattern_of(node);
}

SplitPattern detail::split_lsh(const Pattern& pattern) {
  const Pattern::Node& node = *node_of(pattern);
  if (!node.has_lsh()) return {std::nullopt, pattern};
  if (const Lsh* alone = lsh_of(node)) return {*alone, full()};
  SplitPattern split;
  std::vector<Pattern> others;
  if (node.binding() == Binding::both) {
    for (const auto& operand : static_cast<const Operator&>(node).operands()) {
      const Lsh* leaf = lsh_of(*operand);
      if (leaf == nullptr || split.lsh) {
        others.push_back(pattern_of(operand));
      } else {
        split.lsh = *leaf;
      }
    }
  }
  const bool more = std::any_of(others.begin(), others.end(),
                                [](const Pattern& p) { return node_of(p)->has_lsh(); });
  check(split.lsh && !more, "pattern: lsh is in \"", to_string(pattern),
        "\", expected it once, alone or under &");
  if (!others.empty()) split.rest = join(Binding::both, others);
  return split;
}

Pattern::Pattern() : Pattern(full()) {}

Pattern::Pattern(std::shared_ptr<const Node> node) : node_(std::move(node)) {
  detail::check(node_ != nullptr, "pattern: made from no node");
}

Ranges Pattern::keys_of(Index query, Lengths lengths) const {
  Ranges out;
  keys_of(query, lengths, out);
  return out;
}

void Pattern::keys_of(Index query, Lengths lengths, Ranges& out) const {
  check(lengths);
  detail::check(query >= 0 && query < lengths.queries, "pattern: given query ", query,
                ", expected one of ", lengths.queries, " queries");
  std::vector<Ranges> scratch = scratch_for(*node_);
  node_->keys_of(query_position(query, lengths), scratch, out);
}

void Pattern::check(Lengths lengths) const {
  detail::check(lengths.queries >= 0 && lengths.keys >= 0, "pattern: ", lengths.queries,
                " queries and ", lengths.keys, " keys given, expected 0 or more of each");
  node_->fit(lengths);
}

std::string to_string(const Pattern& pattern) {
  std::string text;
  node_of(pattern)->write(text);
  return text;
}

Pattern operator&(const Pattern& a, const Pattern& b) {
  return join(Binding::both, std::vector{a, b});
}

Pattern operator|(const Pattern& a, const Pattern& b) {
  return join(Binding::either, std::vector{a, b});
}

bool operator==(const Pattern& a, const Pattern& b) {
  return a.node_ == b.node_ || a.node_->equals(*b.node_);
}

}  // namespace rapt
