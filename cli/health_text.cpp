#include "cli/health_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/output.h"

namespace rapt::cli {
namespace {

struct KindLetter {
  const char* kind;
  const char* letter;
  const char* meaning;
};
constexpr std::array kinds = {KindLetter{"first", "f", "rests on the first token"},
                              KindLetter{"one", "o", "on one other token"},
                              KindLetter{"self", "s", "on its own token"},
                              KindLetter{"neighbour", "b", "on the token beside it"},
                              KindLetter{"near", "n", "90 % within 16 tokens"},
                              KindLetter{"even", "e", "looks at all alike"},
                              KindLetter{"mixed", "-", "none of these"}};

const KindLetter& letter_of(const HeadHealth& head) {
  return *std::ranges::find_if(kinds, [&](const KindLetter& k) { return head.kind == k.kind; });
}

/// Layers by number; those of an encoder-decoder by coder and number.
std::string layer_label(const ModelHealth& health, Index layer) {
  const std::string& name = health.layers[static_cast<std::size_t>(layer)].name;
  const std::string number = name.substr(name.rfind('.') + 1);
  return health.sources == 0 ? number : name.substr(0, 3) + " " + number;
}

std::span<const HeadHealth> heads_of(const ModelHealth& health, Index layer) {
  return std::span(health.heads)
      .subspan(static_cast<std::size_t>(layer * health.heads_each),
               static_cast<std::size_t>(health.heads_each));
}

/// A letter for the kind of every head and, where lines stay short, how far 90 % of it reach.
void print_map(const ModelHealth& health) {
  const bool numbers = health.heads_each <= 16;
  fmt::print("heads: kind{}\n\n", numbers ? " and reach of 90 % in tokens" : "");
  fmt::print("{:>7}", "layer");
  for (Index head = 0; head < health.heads_each; ++head)
    fmt::print("{:>{}}", head, numbers ? 7 : 3);
  fmt::print("\n");
  for (Index layer = 0; layer < std::ssize(health.layers); ++layer) {
    fmt::print("{:>7}", layer_label(health, layer));
    for (const HeadHealth& head : heads_of(health, layer))
      numbers ? fmt::print("  {}{:>4}", letter_of(head).letter, head.reach90)
              : fmt::print("  {}", letter_of(head).letter);
    fmt::print("\n");
  }
  std::string legend;
  for (const KindLetter& kind : kinds)
    if (std::ranges::any_of(health.heads, [&](const HeadHealth& h) { return h.kind == kind.kind; }))
      legend += fmt::format("{}{} {}", legend.empty() ? "" : ", ", kind.letter, kind.meaning);
  fmt::print("\n        {}\n\n", legend);
}

template <class Number>
double mean_of(std::span<const HeadHealth> heads, Number HeadHealth::*field) {
  double sum = 0;
  for (const HeadHealth& head : heads) sum += static_cast<double>(head.*field);
  return sum / static_cast<double>(heads.size());
}

Index median_of(std::span<const HeadHealth> heads, Index HeadHealth::*field) {
  std::vector<Index> all;
  for (const HeadHealth& head : heads) all.push_back(head.*field);
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void print_layers(const ModelHealth& health) {
  fmt::print("layers: means over heads; reach of the head in the middle, in tokens\n\n");
  fmt::print("{:>7}{:>9}{:>9}{:>9}{:>11}{:>8}{:>10}{:>8}{:>7}{:>7}{:>7}\n", "layer", "entropy",
             "of most", "largest", "saturated", "spread", "jacobian", "first", "50 %", "90 %",
             "99 %");
  for (Index layer = 0; layer < std::ssize(health.layers); ++layer) {
    const std::span<const HeadHealth> heads = heads_of(health, layer);
    fmt::print(
        "{:>7}{:>9.2f}{:>7.0f} %{:>7.0f} %{:>9.0f} %{:>8.2f}{:>10.3f}{:>6.0f} %{:>7}{:>7}"
        "{:>7}\n",
        layer_label(health, layer), mean_of(heads, &HeadHealth::entropy),
        100 * mean_of(heads, &HeadHealth::evenness), 100 * mean_of(heads, &HeadHealth::largest),
        100 * mean_of(heads, &HeadHealth::saturated), mean_of(heads, &HeadHealth::logit_deviation),
        mean_of(heads, &HeadHealth::jacobian_norm), 100 * mean_of(heads, &HeadHealth::sink_mass),
        median_of(heads, &HeadHealth::reach50), median_of(heads, &HeadHealth::reach90),
        median_of(heads, &HeadHealth::reach99));
  }
  fmt::print("\n");
}

void print_trials(const ModelHealth& health) {
  if (health.trials.empty()) return;
  const bool writes = !std::isnan(health.loss);
  fmt::print("tried: the model run again with narrower patterns\n\n");
  fmt::print("  {:<36}{:>12}{:>8}{:>8}{:>10}{:>12}\n", "", "heads served", "kept", "pairs",
             writes ? "loss" : "cosine", "keys+values");
  const auto line = [&](const std::string& name, Index served, double mass, double pairs,
                        double effect, Index bytes) {
    fmt::print("  {:<36}{:>12}{:>6.0f} %{:>6.0f} %{:>10.4f}{:>12}\n", name,
               fmt::format("{} of {}", served, health.heads.size()), 100 * mass, 100 * pairs,
               effect, health.cache_bytes > 0 ? bytes_text(bytes) : "-");
  };
  line("its own patterns", std::ssize(health.heads), 1, 1, writes ? health.loss : 1,
       health.cache_bytes);
  for (const PatternTrial& trial : health.trials)
    line(trial.name, trial.served, trial.mass, trial.pairs, writes ? trial.loss : trial.cosine,
         trial.cache_bytes);
  fmt::print("\n");
}

/// Words of a sentence in lines of at most so many columns.
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

void print_health(const ModelHealth& health) {
  const std::string tokens =
      health.sources == 0 ? fmt::format("{} tokens", health.tokens)
                          : fmt::format("{} tokens in and {} out", health.sources, health.tokens);
  fmt::print("{}: {} layers of {} heads on {}\n\n", health.model, health.layers.size(),
             health.heads_each, tokens);
  print_map(health);
  print_layers(health);
  print_trials(health);
  for (const std::string& line : health.advice) print_wrapped(line);
  for (const std::string& line : health.notices) print_wrapped("Note: " + line + ".");
}

}  // namespace rapt::cli
