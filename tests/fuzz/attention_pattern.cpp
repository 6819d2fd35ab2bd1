#include "fuzz/target.h"
#include "rapt/pattern.h"

namespace rapt::fuzz {
namespace {

std::vector<std::string> seeds() {
  return {"causal & window(4, 0) | tokens({0, 2}) | prefix(3)",
          "documents({2, 3}, {4, 1}) & (full() | keys(5))",
          "blocks(2, {{0}, {0, 1}}) | dilated(2, 3, 1) & chunks(4, 1, 0)",
          "mask(6, {{0:1, 3:5}, {}}) | window(3, first)",
          "causal(first) & lsh(2, 2, {2, 4}, 7, 1, 0, separate, once)"};
}

std::vector<std::string> words() {
  return {"causal",
          "window(",
          "tokens({",
          "prefix(",
          "documents(",
          "blocks(",
          "keys(",
          "mask(",
          "lsh(",
          "dilated(",
          "chunks(",
          "full",
          "first",
          "last",
          "separate",
          "once",
          " & ",
          " | ",
          "((((",
          "0:3",
          "{}",
          "-1",
          "9223372036854775807",
          "-9223372036854775808"};
}

void ask(const Pattern& pattern, Lengths lengths) {
  for (Index query = 0; query < lengths.queries; ++query) {
    Index end = -1;
    for (const Range& range : refused_or([&] { return pattern.keys_of(query, lengths); })) {
      expect(range.begin > end && range.end > range.begin, "ranges that are not in order");
      end = range.end;
    }
    expect(end <= lengths.keys, "a key that is not there");
  }
}

std::function<void()> open(std::string_view input) {
  const Pattern pattern = refused_or([&] { return Pattern::parse(input); });
  return [pattern] {
    expect(Pattern::parse(to_string(pattern)) == pattern, "another pattern once written");
    ask(pattern, {3, 8});
  };
}

}  // namespace

const Target attention_pattern_target = {"attention_pattern", seeds, words, open};

}  // namespace rapt::fuzz
