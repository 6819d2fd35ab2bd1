#include "train/run/metrics_file.h"

#include "fuzz/target.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

std::vector<std::string> seeds() {
  return {
      R"({"step":1,"loss":5.5,"learning_rate":0.001,"gradient_norm":1.5,"tokens_per_second":9.0})"
      "\n"
      R"({"step":1,"evaluation_loss":5.0,"accuracy":0.5,"exact":0.0,"layers":[{"layer":0}]})"
      "\n"
      R"({"step":2,"loss":nul)",
      "{\"loss\":null}\n\n[]\n"};
}

std::vector<std::string> words() {
  std::vector<std::string> made = json_words({"step", "loss", "evaluation_loss", "accuracy"});
  made.emplace_back("\n");
  return made;
}

/// Nothing is refused: what is no line of metrics is passed over.
std::function<void()> open(std::string_view input) {
  const MetricsTail tail = metrics_tail_in(input);
  return [tail, input] {
    if (!tail.progress) return;
    expect(
        input.find("loss") != std::string_view::npos || input.find("\\u") != std::string_view::npos,
        "progress from nowhere");
  };
}

}  // namespace

const Target metrics_target = {"metrics", seeds, words, open, 0, true};

}  // namespace rapt::fuzz
