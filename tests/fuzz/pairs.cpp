#include "train/data/pairs.h"

#include <memory>

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

constexpr Index longest = 24;

const Tokenizer& letters() {
  static const Tokenizer bytes = Tokenizer::bytes();
  return bytes;
}

std::vector<std::string> seeds() {
  return {"4096\tfour\n17\tseventeen\r\n0\tzero", "a\tx\r\r\nb\ty\nb\tz\n", "\xFF\t\xC3\n"};
}

std::vector<std::string> words() {
  return {"\t",
          "\n",
          "\r\n",
          "\r",
          "\t\t",
          "a\tb\n",
          "\n\n",
          "\t\n",
          std::string(1, '\0'),
          "0123456789abcdefghijklmn"};
}

/// Lines without what ends them, as the definition has it.
std::string plain_lines(std::string_view input) {
  std::string lines;
  while (!input.empty()) {
    std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(line.size() + 1, input.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.append(line).append("\n");
  }
  return lines;
}

void check_batch(const Batch& batch) {
  expect(batch.items > 0 && batch.tokens <= longest && batch.source_tokens <= longest,
         "a batch of another size");
  expect(std::ssize(batch.inputs) == batch.items * batch.tokens &&
             batch.targets.size() == batch.inputs.size() &&
             std::ssize(batch.sources) == batch.items * batch.source_tokens,
         "a batch with holes");
  for (const auto* ids : {&batch.inputs, &batch.sources})
    for (const std::int32_t id : *ids)
      expect(id >= 0 && id < letters().vocab_size(), "an id that is no token");
}

/// The lines come back, and batches of them are whole.
void use(const Pairs& pairs, std::string_view input) {
  std::string lines;
  for (Index i = 0; i < pairs.count(); ++i)
    lines += letters().decode(pairs.source(i)) + "\t" + letters().decode(pairs.target(i)) + "\n";
  expect(lines == plain_lines(input), "other lines");
  const auto data = open_data({.path = in_memory(input),
                               .objective = Objective::pairs,
                               .batch_size = 2,
                               .tokens = longest,
                               .eval_batches = 2,
                               .eval_fraction = 0.3},
                              letters());
  expect(data->items_per_epoch() > 0 && data->items_per_epoch() < pairs.count(),
         "nothing held out");
  check_batch(data->batch(1));
  for (Index i = 0; i < data->eval_batches(); ++i) check_batch(data->eval_batch(i));
}

std::function<void()> open(std::string_view input) {
  const auto pairs = std::make_shared<const Pairs>(in_memory(input), letters(), longest);
  return [pairs, input] { use(*pairs, input); };
}

}  // namespace

const Target pairs_target = {"pairs", seeds, words, open};

}  // namespace rapt::fuzz
