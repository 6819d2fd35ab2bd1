#include <array>
#include <vector>

#include "attention/pattern/pattern_node.h"
#include "attention/pattern/pattern_reader.h"

namespace rapt {
using namespace detail;

namespace {

std::vector<Index> integers(PatternReader& reader, char close) {
  std::vector<Index> numbers;
  reader.list(close, [&] { numbers.push_back(reader.integer()); });
  return numbers;
}

std::vector<Index> braced_integers(PatternReader& reader) {
  reader.expect('{', "'{'");
  return integers(reader, '}');
}

void close(PatternReader& reader) { reader.expect(')', "')'"); }

Index only_integer(PatternReader& reader) {
  reader.expect('(', "'('");
  const Index number = reader.integer();
  close(reader);
  return number;
}

Align align(PatternReader& reader) {
  const std::size_t at = reader.at();
  const std::string_view word = reader.name();
  if (word == "first") return Align::first;
  if (word == "last") return Align::last;
  reader.fail_expecting(at, "'first' or 'last'");
}

Pattern parse_full(PatternReader& reader) {
  if (reader.take('(')) close(reader);
  return full();
}

Pattern parse_causal(PatternReader& reader) {
  if (!reader.take('(') || reader.take(')')) return causal();
  const Align corner = align(reader);
  close(reader);
  return causal(corner);
}

/// window(512), window(256, 256), each with an optional corner at the end.
Pattern parse_window(PatternReader& reader) {
  reader.expect('(', "'('");
  const Index left = reader.integer();
  Index right = left;
  Align corner = Align::last;
  bool more = reader.take(',');
  if (more && !reader.at_name()) {
    right = reader.integer("an integer, 'first' or 'last'");
    more = reader.take(',');
  }
  if (more) corner = align(reader);
  reader.expect(')', more ? "')'" : "',' or ')'");
  return window(left, right, corner);
}

Pattern parse_tokens(PatternReader& reader) {
  reader.expect('(', "'('");
  if (reader.peek() != '{') return tokens(integers(reader, ')'));
  std::vector<Index> positions = braced_integers(reader);
  close(reader);
  return tokens(std::move(positions));
}

Pattern parse_documents(PatternReader& reader) {
  reader.expect('(', "'('");
  if (reader.peek() != '{') return documents(integers(reader, ')'));
  std::vector<Index> lengths = braced_integers(reader);
  if (reader.take(')')) return documents(std::move(lengths));
  reader.expect(',', "',' or ')'");
  std::vector<Index> key_lengths = braced_integers(reader);
  close(reader);
  return documents(std::move(lengths), std::move(key_lengths));
}

/// "(number, {row, row, ...})", each row read by `row`.
template <class Row>
Index table(PatternReader& reader, const Row& row) {
  reader.expect('(', "'('");
  const Index number = reader.integer();
  reader.expect(',', "','");
  reader.expect('{', "'{'");
  reader.list('}', row);
  close(reader);
  return number;
}

Pattern parse_blocks(PatternReader& reader) {
  std::vector<std::vector<Index>> rows_of_blocks;
  const Index size = table(reader, [&] { rows_of_blocks.push_back(braced_integers(reader)); });
  return blocks(size, std::move(rows_of_blocks));
}

Ranges braced_ranges(PatternReader& reader) {
  Ranges ranges;
  reader.expect('{', "'{'");
  reader.list('}', [&] {
    const Index begin = reader.integer("a range like 0:3");
    reader.expect(':', "':'");
    ranges.push_back({begin, reader.integer()});
  });
  return ranges;
}

Pattern parse_mask(PatternReader& reader) {
  std::vector<Ranges> keys_of_query;
  const Index keys = table(reader, [&] { keys_of_query.push_back(braced_ranges(reader)); });
  return mask(keys, std::move(keys_of_query));
}

/// "(a, b, c)"
std::array<Index, 3> three_integers(PatternReader& reader) {
  std::array<Index, 3> numbers{};
  reader.expect('(', "'('");
  for (Index& number : numbers) {
    if (&number != numbers.data()) reader.expect(',', "','");
    number = reader.integer();
  }
  close(reader);
  return numbers;
}

Pattern parse_dilated(PatternReader& reader) {
  const auto [step, left, right] = three_integers(reader);
  return dilated(step, left, right);
}

Pattern parse_chunks(PatternReader& reader) {
  const auto [size, before, after] = three_integers(reader);
  return chunks(size, before, after);
}

/// lsh(64), lsh(64, 4, {8, 16}, 7, 1, 0, separate, once), or anything between.
Pattern parse_lsh(PatternReader& reader) {
  Lsh options;
  reader.expect('(', "'('");
  options.chunk = reader.integer();
  bool more = reader.take(',');
  const auto number = [&](Index& to) {
    if (!more || reader.at_name()) return;
    to = reader.integer();
    more = reader.take(',');
  };
  number(options.rounds);
  const bool braced = more && reader.peek() == '{';
  if (braced) {
    options.buckets = braced_integers(reader);
    more = reader.take(',');
  }
  const std::size_t third = reader.at();
  const bool seeded = more && !reader.at_name();
  Index seed = 0;
  number(seed);
  if (seeded && !braced && (!more || reader.at_name())) {
    const std::string n = std::to_string(seed);
    reader.fail(third,
                "buckets or a seed? Write {" + n + "} for buckets, {}, " + n + " for a seed");
  }
  options.seed = static_cast<std::uint64_t>(seed);
  number(options.before);
  number(options.after);
  while (more) {
    const std::size_t at = reader.at();
    const std::string_view word = reader.name();
    if (word == "separate" && options.keys == Lsh::Keys::shared) {
      options.keys = Lsh::Keys::separate;
    } else if (word == "once" && options.duplicates == Lsh::Duplicates::keep) {
      options.duplicates = Lsh::Duplicates::once;
    } else {
      reader.fail_expecting(at, "a number, 'separate' or 'once', each once");
    }
    more = reader.take(',');
  }
  close(reader);
  return lsh(options);
}

struct LeafRule {
  std::string_view name;
  Pattern (*parse)(PatternReader&);
};

constexpr std::array leaf_rules = {
    LeafRule{"full", parse_full},
    LeafRule{"causal", parse_causal},
    LeafRule{"window", parse_window},
    LeafRule{"tokens", parse_tokens},
    LeafRule{"prefix", [](PatternReader& reader) { return prefix(only_integer(reader)); }},
    LeafRule{"documents", parse_documents},
    LeafRule{"blocks", parse_blocks},
    LeafRule{"keys", [](PatternReader& reader) { return keys(only_integer(reader)); }},
    LeafRule{"dilated", parse_dilated},
    LeafRule{"chunks", parse_chunks},
    LeafRule{"mask", parse_mask},
    LeafRule{"lsh", parse_lsh},
};

[[noreturn]] void fail_unknown(const PatternReader& reader, std::size_t at, std::string_view name) {
  std::vector<std::string_view> names;
  std::string all;
  for (const LeafRule& rule : leaf_rules) {
    names.push_back(rule.name);
    all.append(all.empty() ? "" : ", ").append(rule.name);
  }
  if (name == "rows") reader.fail(at, "rows(...) is called mask(...)");
  const std::string_view nearest = nearest_name(name, names);
  if (nearest.empty()) reader.fail_expecting(at, "one of " + all);
  reader.fail_expecting(at, "a pattern; did you mean '" + std::string(nearest) + "'?");
}

/// either: both { '|' both };  both: operand { '&' operand };  operand: leaf or '(' either ')'.
class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}

  Pattern everything() {
    Pattern pattern = either();
    if (!reader_.at_end()) reader_.fail_expecting(reader_.at(), "'&', '|' or the end of the text");
    return pattern;
  }

 private:
  // Twice what the text of the tallest tree needs, little enough for any stack.
  static constexpr Index max_nesting = Pattern::Node::max_height;

  Pattern either() {
    const std::size_t at = reader_.at();
    std::vector<Pattern> parts;
    do parts.push_back(both());
    while (reader_.take('|'));
    return reader_.located(at, [&] { return join(Binding::either, parts); });
  }

  Pattern both() {
    const std::size_t at = reader_.at();
    std::vector<Pattern> parts;
    do parts.push_back(operand());
    while (reader_.take('&'));
    return reader_.located(at, [&] { return join(Binding::both, parts); });
  }

  Pattern operand() {
    const std::size_t at = reader_.at();
    if (reader_.take('(')) return nested(at);
    const std::string_view name = reader_.name();
    if (name.empty()) reader_.fail_expecting(at, "a pattern");
    for (const LeafRule& rule : leaf_rules)
      if (rule.name == name) return reader_.located(at, [&] { return rule.parse(reader_); });
    fail_unknown(reader_, at, name);
  }

  Pattern nested(std::size_t at) {
    if (nesting_ == max_nesting)
      reader_.fail(at, "parentheses nest deeper than " + std::to_string(max_nesting) + " levels");
    ++nesting_;
    Pattern pattern = either();
    --nesting_;
    reader_.expect(')', "'&', '|' or ')'");
    return pattern;
  }

  PatternReader reader_;
  Index nesting_ = 0;
};

}  // namespace

Pattern Pattern::parse(std::string_view text) { return Parser(text).everything(); }

}  // namespace rapt
