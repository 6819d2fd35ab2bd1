#include <algorithm>
#include <cmath>

#include "attention/pattern/pattern_node.h"
#include "base/check.h"
#include "base/sizes.h"

namespace rapt {
using namespace detail;
namespace {

class LshNode final : public Pattern::Node {
 public:
  explicit LshNode(const Lsh& options) : options_(options) {}

  void keys_of(const QueryPosition&, std::span<Ranges>, Ranges&) const override { refuse(); }
  void fit(Lengths) const override { refuse(); }
  void write(std::string& text) const override;
  bool equals(const Node& other) const override {
    const auto* same = dynamic_cast<const LshNode*>(&other);
    return same != nullptr && same->options_ == options_;
  }
  Binding binding() const override { return Binding::leaf; }
  Index height() const override { return 0; }
  std::shared_ptr<const Node> among(Index) const override { return nullptr; }
  bool has_lsh() const override { return true; }
  const Lsh& options() const { return options_; }

 private:
  [[noreturn]] static void refuse() {
    throw std::invalid_argument(
        "pattern: what lsh lets a query see depends on the numbers, so it has no key ranges and no "
        "plan; expected a call to attend with q, k and v or over a hashed cache, without a plan");
  }

  Lsh options_;
};

void LshNode::write(std::string& text) const {
  const auto add = [&](Index number) { text += ", " + std::to_string(number); };
  text += "lsh(" + std::to_string(options_.chunk);
  add(options_.rounds);
  if (!options_.buckets.empty()) text += ", " + list_text(options_.buckets);
  add(static_cast<Index>(options_.seed));
  add(options_.before);
  add(options_.after);
  if (options_.keys == Lsh::Keys::separate) text += ", separate";
  if (options_.duplicates == Lsh::Duplicates::once) text += ", once";
  text += ')';
}

}  // namespace

const Lsh* detail::lsh_of(const Pattern::Node& node) {
  const auto* leaf = dynamic_cast<const LshNode*>(&node);
  return leaf == nullptr ? nullptr : &leaf->options();
}

Pattern lsh(const Lsh& options) {
  constexpr Index most = Index{1} << 20;
  const auto between = [](const char* what, Index number, Index least, Index largest) {
    check(least <= number && number <= largest, "lsh: ", what, " is ", number, ", expected ", least,
          " to ", largest);
  };
  between("chunk", options.chunk, 1, most);
  between("rounds", options.rounds, 1, 1024);
  between("before", options.before, 0, 1024);
  between("after", options.after, 0, 1024);
  check(options.seed <= static_cast<std::uint64_t>(std::numeric_limits<Index>::max()),
        "lsh: seed is ", options.seed, ", expected at most ", std::numeric_limits<Index>::max());
  double product = 1;
  for (const Index factor : options.buckets) {
    check(factor >= 2 && factor % 2 == 0 && factor <= most, "lsh: a bucket factor is ", factor,
          ", expected an even number from 2 to ", most);
    product *= static_cast<double>(factor);
  }
  check(product <= 0x1p22, "lsh: ", product, " buckets, expected at most 2^22");
  return pattern_of(std::make_shared<const LshNode>(options));
}

std::optional<Lsh> lsh_part(const Pattern& pattern) { return split_lsh(pattern).lsh; }

Index lsh_pairs(const Lsh& options, Index tokens) {
  lsh(options);  // refuses what makes no sense
  if (tokens <= options.chunk) return checked_product({tokens, tokens});
  const Index chunks = checked_product({options.rounds, divide_up(tokens, options.chunk)});
  const Index seen = std::min(chunks, 1 + options.before + options.after);
  return checked_product({chunks, options.chunk, seen, options.chunk});
}

std::vector<Index> lsh_buckets(Index tokens, Index chunk) {
  check(tokens >= 1 && chunk >= 1, "lsh_buckets: ", tokens, " tokens and chunks of ", chunk,
        " given, expected at least 1 of each");
  check(tokens <= Index{1} << 40, "lsh_buckets: ", tokens, " tokens given, expected at most 2^40");
  const Index chunks = divide_up(tokens, chunk);
  Index power = 1;
  while ((Index{2} << power) <= 2 * chunks) ++power;
  const auto root = static_cast<Index>(std::sqrt(static_cast<double>(chunks)));
  if ((Index{1} << power) <= 2 * std::max(root, chunk)) return {Index{1} << power};
  return {Index{1} << (power / 2), Index{1} << (power - power / 2)};
}

}  // namespace rapt
