#include "support/cases.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>

namespace rapt::test {

namespace {

/// One list of fields says how a case is written and read.
template <class AnyCase, class Visit>
void visit_fields(AnyCase& c, const Visit& visit) {
  visit("batch", c.batch), visit("heads", c.heads), visit("kv_heads", c.kv_heads);
  visit("queries", c.queries), visit("keys", c.keys);
  visit("dim", c.dim), visit("value_dim", c.value_dim), visit("layout", c.layout);
  visit("pattern", c.pattern), visit("scale", c.scale), visit("softcap", c.softcap);
  visit("bias", c.bias), visit("sinks", c.sinks), visit("dropout", c.dropout);
  visit("inputs", c.inputs), visit("seed", c.seed);
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

void read(const std::string& text, std::string& field) { field = text; }

template <class Number>
void read(const std::string& text, Number& field) {
  std::istringstream stream(text);
  if (!(stream >> field) || stream.peek() != std::istringstream::traits_type::eof())
    throw std::invalid_argument("case: \"" + text + "\" is not a number");
}

/// False if no field has this name.
bool set_field(Case& c, const std::string& name, const std::string& text) {
  bool known = false;
  visit_fields(c, [&](const char* field_name, auto& field) {
    if (name == field_name) read(text, field), known = true;
  });
  return known;
}

}  // namespace

std::string Case::repro() const {
  std::ostringstream line;
  visit_fields(*this, [&](const char* name, const auto& field) {
    line << (line.tellp() > 0 ? "; " : "") << name << '=' << field;
  });
  return line.str();
}

Case parse_case(std::string_view line) {
  Case c;
  while (!line.empty()) {
    const std::string_view item = line.substr(0, line.find(';'));
    line.remove_prefix(std::min(line.size(), item.size() + 1));
    if (trimmed(item).empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == item.npos)
      throw std::invalid_argument("case: expected name=value, got \"" + trimmed(item) + "\"");
    const std::string name = trimmed(item.substr(0, equals));
    if (!set_field(c, name, trimmed(item.substr(equals + 1))))
      throw std::invalid_argument("case: no field is called " + name);
  }
  return c;
}

namespace {

/// Random lengths that add up to at most `total`, zeros among them.
std::vector<Index> split(Index total, Index parts, Random& random) {
  std::vector<Index> lengths;
  for (Index part = 0; part < parts; ++part) {
    lengths.push_back(random.below(part % 3 == 2 ? 1 : total / 2 + 2));
    lengths.back() = std::min(lengths.back(), total);
    total -= lengths.back();
  }
  return lengths;
}

Pattern random_blocks(Index keys_count, Random& random) {
  const Index sizes[] = {1, 5, 16, 64};
  const Index size = std::max(sizes[random.below(4)], keys_count / 64);  // keeps the text short
  const Index count = (keys_count + size - 1) / size;
  std::vector<std::vector<Index>> table(static_cast<std::size_t>(count));
  for (auto& row : table)
    for (Index block = random.below(6); block < count; block += 1 + random.below(6))
      row.push_back(block);
  return blocks(size, table);
}

const std::vector<std::string> pattern_kinds = {"full",
                                                "causal",
                                                "causal(first)",
                                                "window",
                                                "causal & window",
                                                "window | tokens",
                                                "prefix",
                                                "documents",
                                                "cross",
                                                "blocks",
                                                "keys",
                                                "dilated",
                                                "random",
                                                "sparse",
                                                "packed"};

std::string pattern_text(const std::string& kind, Index queries, Index keys_count, Random& random) {
  const Index left = random.below(70), right = random.below(20);
  if (kind == "causal(first)") return to_string(causal(Align::first));
  if (kind == "window") return to_string(window(left, right));
  if (kind == "causal & window") return to_string(causal() & window(left, 0));
  if (kind == "window | tokens" && keys_count > 0)
    return to_string(window(left, right) | tokens({0, keys_count / 2}));
  if (kind == "prefix") return to_string(causal() | prefix(keys_count / 3));
  if (kind == "documents") return to_string(documents(split(keys_count, 5, random)));
  if (kind == "packed") return to_string(causal() & documents(split(keys_count, 4, random)));
  if (kind == "cross")
    return to_string(documents(split(queries, 4, random), split(keys_count, 4, random)));
  if (kind == "blocks") return to_string(random_blocks(keys_count, random));
  if (kind == "keys") return to_string(keys(random.below(keys_count + 1)));
  if (kind == "dilated") return to_string(dilated(2 + random.below(4), left, right));
  if (kind == "random") return "random(0.4)";
  if (kind == "sparse") return "random(0.02)";
  return kind == "causal" ? to_string(causal()) : to_string(full());
}

struct Heads {
  Index heads, kv_heads;
};

const std::vector<Heads> head_choices = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 1},
                                         {4, 2}, {8, 1}, {8, 4}, {6, 2}, {8, 8}};
const std::vector<Index> dims = {1, 3, 8, 16, 32, 40, 63, 64, 65, 80, 96, 128, 192, 256, 512};
const std::vector<std::string> scales = {"sqrt", "dim", "log_n", "1", "-0.3"};
const std::vector<double> softcaps = {0, 0, 5, 30};
const std::vector<std::string> bias_choices = {"none",
                                               "alibi",
                                               "t5",
                                               "t5_past",
                                               "shaw",
                                               "dense",
                                               "dense_row",
                                               "dense_keys",
                                               "dense_inf",
                                               "alibi+t5",
                                               "shaw+dense_inf",
                                               "alibi+t5+shaw+dense",
                                               "shaw_far",
                                               "kerple_log",
                                               "kerple_power+dense",
                                               "shaw+shaw_values",
                                               "shaw_values_far+dense_inf"};
const std::vector<double> dropouts = {0, 0, 0.1, 0.75};

/// The choices of one case as numbers, so that pairs of them can be counted.
using Choices = std::vector<std::size_t>;

Case case_without_pattern(const Choices& choice, Lengths lengths, std::uint64_t seed) {
  Case c;
  c.queries = lengths.queries, c.keys = lengths.keys, c.seed = seed;
  c.dim = dims[choice[0]];
  c.value_dim = choice[1] == 0 ? c.dim : dims[(choice[0] + 4 * choice[1]) % dims.size()];
  c.heads = head_choices[choice[2]].heads, c.kv_heads = head_choices[choice[2]].kv_heads;
  c.layout = layouts()[choice[3]];
  c.scale = scales[choice[5]];
  c.softcap = softcaps[choice[6]];
  c.bias = bias_choices[choice[7]];
  c.sinks = choice[8] == 1;
  c.dropout = dropouts[choice[9]];
  c.inputs = inputs()[choice[10]];
  c.batch = static_cast<Index>(choice[11]) + 1;
  return c;
}

Case case_of(const Choices& choice, Lengths lengths, std::uint64_t seed) {
  Random random(seed);
  Case c = case_without_pattern(choice, lengths, seed);
  c.pattern = pattern_text(pattern_kinds[choice[4]], c.queries, c.keys, random);
  return c;
}

/// Multiplications of the definition's forward pass over all pairs.
double cost(const Case& c) {
  return static_cast<double>(c.batch * c.heads) * static_cast<double>(c.queries * c.keys) *
         static_cast<double>(c.dim + c.value_dim);
}

const std::vector<std::size_t> choice_counts = {dims.size(),
                                                3,
                                                head_choices.size(),
                                                layouts().size(),
                                                pattern_kinds.size(),
                                                scales.size(),
                                                softcaps.size(),
                                                bias_choices.size(),
                                                2,
                                                dropouts.size(),
                                                inputs().size(),
                                                3};

Choices random_choices(Random& random) {
  Choices choice;
  for (const std::size_t count : choice_counts)
    choice.push_back(static_cast<std::size_t>(random.below(static_cast<Index>(count))));
  return choice;
}

/// Which pairs of choices have met; lengths count as two more choices.
class Cover {
 public:
  std::size_t fresh(const Choices& choice) const {
    std::size_t count = 0;
    visit(choice, [&](std::uint64_t pair) { count += !met_.contains(pair); });
    return count;
  }
  void add(const Choices& choice) {
    visit(choice, [&](std::uint64_t pair) { met_.insert(pair); });
  }

 private:
  static void visit(const Choices& choice, const std::function<void(std::uint64_t)>& each) {
    for (std::size_t a = 0; a < choice.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) each(((a * 32 + b) * 32 + choice[a]) * 32 + choice[b]);
  }
  std::set<std::uint64_t> met_;
};

constexpr double case_budget = 3e6;

/// The best of several draws: affordable, and bringing together the most choices that never met.
Case next_case(Cover& cover, Lengths lengths, const Choices& length_choices, std::uint64_t seed) {
  Random random(seed);
  Choices best;
  std::size_t best_fresh = 0;
  for (int attempt = 0; attempt < 400 && (attempt < 25 || best.empty()); ++attempt) {
    Choices choice = random_choices(random);
    if (attempt > 100) choice[2] = 0, choice[11] = 0;  // one head, one item: most dims fit
    if (cost(case_without_pattern(choice, lengths, seed)) > case_budget) continue;
    choice.insert(choice.end(), length_choices.begin(), length_choices.end());
    const std::size_t fresh = cover.fresh(choice);
    if (best.empty() || fresh > best_fresh) best = choice, best_fresh = fresh;
  }
  if (best.empty()) best = Choices(choice_counts.size() + 2);
  cover.add(best);
  return case_of(best, lengths, seed);
}

std::vector<Case> grid() {
  const std::vector<Index> lengths = {0,  1,  2,   3,   15,  16,  17,   31,   33,   63,
                                      64, 65, 127, 129, 255, 257, 1000, 1023, 1025, 4096};
  std::vector<Case> cases;
  Cover cover;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (std::size_t j = 0; j < lengths.size(); ++j)
      if (lengths[i] * lengths[j] <= 65 * 4096)
        cases.push_back(next_case(cover, {lengths[i], lengths[j]}, {i, j}, 1000 + cases.size()));
  return cases;
}

}  // namespace

std::vector<Case> attention_cases() {
  if (const char* line = std::getenv("RAPT_REPRO")) return {parse_case(line)};
  std::vector<Case> cases = grid();
  for (const char* line :
       {"queries=1000; keys=1000; pattern=causal; heads=2; kv_heads=1; dim=16; value_dim=16",
        "queries=1025; keys=1023; pattern=window(40, 3) | tokens({0}); dim=24; value_dim=16",
        "queries=600; keys=2048; pattern=causal & window(512, 0); bias=alibi; dim=16; value_dim=8",
        "queries=3; keys=4096; pattern=full; inputs=same_sign; dim=64; value_dim=64",
        "queries=4096; keys=3; pattern=full; inputs=same_sign; dim=64; value_dim=64"})
    cases.push_back(parse_case(line));
  return cases;
}

std::vector<Case> long_cases() {
  if (const char* line = std::getenv("RAPT_REPRO")) return {parse_case(line)};
  std::vector<Case> cases;
  for (const Index length : {Index{16384}, Index{262144}, Index{1048576}})
    for (const char* inputs : {"same_sign", "equal", "normal"}) {
      Case c;
      c.queries = 3, c.keys = length, c.dim = 16, c.value_dim = 16, c.inputs = inputs;
      cases.push_back(c);
      std::swap(c.queries, c.keys);
      cases.push_back(c);
    }
  cases.push_back(parse_case("queries=4096; keys=4096; pattern=causal; dim=8; value_dim=8"));
  cases.push_back(parse_case(
      "queries=16384; keys=16384; pattern=window(256, 256) | tokens({0}); dim=16; value_dim=16"));
  return cases;
}

Case random_case(std::uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15 + 5);
  for (;;) {
    const auto length = [&] {
      return random.below(4) == 0 ? random.below(4)
                                  : random.below(Index{1} << (2 + random.below(9)));
    };
    const Lengths lengths{length(), length()};
    Case c = case_of(random_choices(random), lengths, seed);
    if (random.below(2)) c.dim = 1 + random.below(140);
    if (random.below(2)) c.value_dim = 1 + random.below(140);
    if (cost(c) <= case_budget) return c;
  }
}

}  // namespace rapt::test
