#include "cli/models/head_report_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/console/output.h"

namespace rapt::cli {
namespace {

struct KindLetter {
  HeadStats::Kind kind;
  const char* letter;
  const char* meaning;
};
using enum HeadStats::Kind;
constexpr std::array kinds = {KindLetter{first, "f", "rests on the first token"},
                              KindLetter{one, "o", "on one other token"},
                              KindLetter{self, "s", "on its own token"},
                              KindLetter{neighbour, "b", "on the token beside it"},
                              KindLetter{near, "n", "90 % within 16 tokens"},
                              KindLetter{even, "e", "looks at all alike"},
                              KindLetter{mixed, "-", "none of these"}};

const KindLetter& letter_of(const HeadStats& head) {
  return *std::ranges::find_if(kinds, [&](const KindLetter& k) { return head.kind == k.kind; });
}

/// A layer by its number; in an encoder-decoder by its stack and number.
std::string layer_label(const HeadReport& report, Index layer) {
  const std::string& name = report.layers.data()[layer].name;
  const std::string number = name.substr(name.rfind('.') + 1);
  return report.sources == 0 ? number : name.substr(0, 3) + " " + number;
}

std::span<const HeadStats> heads_of(const HeadReport& report, Index layer) {
  const HeadStats* first = report.heads.data() + layer * report.heads_per_layer;
  return {first, first + report.heads_per_layer};
}

/// A letter for the kind of every head and, if lines stay short, its reach of 90 %.
void print_map(const HeadReport& report) {
  const bool numbers = report.heads_per_layer <= 16;
  fmt::print("heads: kind{}\n\n", numbers ? " and reach of 90 % in tokens" : "");
  fmt::print("{:>7}", "layer");
  for (Index head = 0; head < report.heads_per_layer; ++head)
    fmt::print("{:>{}}", head, numbers ? 7 : 3);
  fmt::print("\n");
  for (Index layer = 0; layer < std::ssize(report.layers); ++layer) {
    fmt::print("{:>7}", layer_label(report, layer));
    for (const HeadStats& head : heads_of(report, layer))
      numbers ? fmt::print("  {}{:>4}", letter_of(head).letter, head.reach90)
              : fmt::print("  {}", letter_of(head).letter);
    fmt::print("\n");
  }
  std::string legend;
  for (const KindLetter& kind : kinds)
    if (std::ranges::any_of(report.heads, [&](const HeadStats& h) { return h.kind == kind.kind; }))
      legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", kind.letter, kind.meaning);
  fmt::print("\n        {}\n\n", legend);
}

template <class Number>
double mean_of(std::span<const HeadStats> heads, Number HeadStats::*field) {
  double sum = 0;
  for (const HeadStats& head : heads) sum += static_cast<double>(head.*field);
  return sum / static_cast<double>(heads.size());
}

Index median_of(std::span<const HeadStats> heads, Index HeadStats::*field) {
  std::vector<Index> all;
  for (const HeadStats& head : heads) all.push_back(head.*field);
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void print_layers(const HeadReport& report) {
  fmt::print("layers: means over heads; reach of the median head, in tokens\n\n");
  fmt::print("{:>7}{:>9}{:>9}{:>9}{:>11}{:>8}{:>10}{:>8}{:>7}{:>7}{:>7}\n", "layer", "entropy",
             "of most", "largest", "saturated", "spread", "jacobian", "first", "50 %", "90 %",
             "99 %");
  for (Index layer = 0; layer < std::ssize(report.layers); ++layer) {
    const std::span<const HeadStats> heads = heads_of(report, layer);
    fmt::print(
        "{:>7}{:>9.2f}{:>7.0f} %{:>7.0f} %{:>9.0f} %{:>8.2f}{:>10.3f}{:>6.0f} %{:>7}{:>7}"
        "{:>7}\n",
        layer_label(report, layer), mean_of(heads, &HeadStats::entropy),
        100 * mean_of(heads, &HeadStats::normalized_entropy),
        100 * mean_of(heads, &HeadStats::largest), 100 * mean_of(heads, &HeadStats::saturated),
        mean_of(heads, &HeadStats::logit_std), mean_of(heads, &HeadStats::jacobian_norm),
        100 * mean_of(heads, &HeadStats::sink_mass), median_of(heads, &HeadStats::reach50),
        median_of(heads, &HeadStats::reach90), median_of(heads, &HeadStats::reach99));
  }
  fmt::print("\n");
}

void print_trials(const HeadReport& report) {
  if (report.trials.empty()) return;
  const bool writes = report.loss.has_value();
  fmt::print("tried: the model run again with narrower patterns\n\n");
  fmt::print("  {:<36}{:>12}{:>8}{:>8}{:>10}{:>12}\n", "", "heads served", "kept", "pairs",
             writes ? "loss" : "cosine", "keys+values");
  const auto line = [&](const std::string& name, Index served, double mass, double pairs,
                        double effect, Index bytes) {
    fmt::print("  {:<36}{:>12}{:>6.0f} %{:>6.0f} %{:>10.4f}{:>12}\n", name,
               fmt::format("{} of {}", served, report.heads.size()), 100 * mass, 100 * pairs,
               effect, report.cache_bytes > 0 ? bytes_text(bytes) : "-");
  };
  line("its own patterns", std::ssize(report.heads), 1, 1, report.loss.value_or(1),
       report.cache_bytes);
  for (const PatternTrial& trial : report.trials)
    line(trial.name, trial.served, trial.mass, trial.pairs, trial.loss.value_or(trial.cosine),
         trial.cache_bytes);
  fmt::print("\n");
}

/// Wraps a sentence at 96 columns.
void print_wrapped(const std::string& text) {
  constexpr std::size_t columns = 96;
  std::string line = "-";
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > columns) {
      fmt::print("{}\n", line);
      line = " ";
    }
    line += " " + word;
  }
  fmt::print("{}\n", line);
}

}  // namespace

void print_report(const HeadReport& report) {
  const std::string tokens =
      report.sources == 0 ? fmt::format("{} tokens", report.tokens)
                          : fmt::format("{} tokens in and {} out", report.sources, report.tokens);
  fmt::print("{}: {} layers of {} heads on {}\n\n", report.model, report.layers.size(),
             report.heads_per_layer, tokens);
  print_map(report);
  print_layers(report);
  print_trials(report);
  for (const std::string& line : report.advice) print_wrapped(line);
  for (const std::string& line : report.warnings) print_wrapped("Note: " + line + ".");
}

}  // namespace rapt::cli
