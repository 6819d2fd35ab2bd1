#include "head_report/health_advice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "head_report/health_trials.h"
#include "lab/experiments/numbers.h"

namespace rapt::lab {
namespace {

std::string count_text(Index count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}
std::string heads_text(Index count) { return count_text(count, "head", "heads"); }

/// 43 %, 99.97 %
std::string percent(double share) {
  char text[32];
  const bool edge = share > 0.99 && share < 1;
  std::snprintf(text, sizeof text, edge ? "%.2f %%" : "%.0f %%",
                edge ? std::floor(share * 1e4) / 100 : 100 * share);
  return text;
}

std::string megabytes(Index bytes) { return short_text(static_cast<double>(bytes) / 1e6) + " MB"; }

std::string loss_text(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", loss);
  return text;
}

/// "L3H5": layer 3, head 5.
std::string name_of(const HeadHealth& head) {
  return "L" + std::to_string(head.layer) + "H" + std::to_string(head.head);
}

/// Some of the heads by name, those with the most first.
std::string some_of(std::vector<const HeadHealth*> heads,
                    const std::function<double(const HeadHealth&)>& by) {
  constexpr std::size_t most = 6;
  std::ranges::stable_sort(
      heads, [&](const HeadHealth* a, const HeadHealth* b) { return by(*a) > by(*b); });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, heads.size()); ++i)
    text += (i == 0 ? "" : ", ") + name_of(*heads[i]);
  return heads.size() > most ? text + ", ..." : text;
}

std::vector<const HeadHealth*> those(const ModelHealth& health,
                                     const std::function<bool(const HeadHealth&)>& which) {
  std::vector<const HeadHealth*> found;
  for (const HeadHealth& head : health.heads)
    if (which(head)) found.push_back(&head);
  return found;
}

/// A token's text between quotes.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    line += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, control ? '?' : c);
  }
  return line;
}

/// The token, other than the first, that most heads rest on.
std::string favourite(const ModelHealth& health) {
  std::map<std::pair<bool, Index>, Index> heads;  // of an encoder or not, token: how many
  for (const HeadHealth* head :
       those(health, [](const HeadHealth& h) { return h.kind == "one"; })) {
    const LayerHealth& layer = health.layers[static_cast<std::size_t>(head->layer)];
    ++heads[{health.sources > 0 && layer.name.starts_with("encoder"), head->favourite}];
  }
  if (heads.empty()) return "";
  const auto most =
      std::ranges::max_element(heads, {}, [](const auto& each) { return each.second; });
  const auto& [of_source, token] = most->first;
  const auto place = static_cast<std::size_t>(token);
  const std::vector<std::string>& texts = of_source ? health.source_texts : health.texts;
  const std::string text = place < texts.size() ? " (\"" + one_line(texts[place]) + "\")" : "";
  return " That other token is number " + std::to_string(token) + " of " +
         std::to_string(of_source ? health.sources : health.tokens) + text + " for " +
         std::to_string(most->second) + " of them.";
}

std::string kinds(const ModelHealth& health) {
  struct Kind {
    const char *name, *one, *many, *what;
  };
  constexpr Kind all[] = {{"first", "rests", "rest", "on the first token"},
                          {"one", "rests", "rest", "on one other token"},
                          {"self", "looks", "look", "at the query's own token"},
                          {"neighbour", "looks", "look", "at the token beside"},
                          {"near", "has", "have", "90 % within 16 tokens"},
                          {"even", "looks", "look", "at everything alike"},
                          {"mixed", "does", "do", "none of this"}};
  std::string text = "Of " + heads_text(std::ssize(health.heads)) + " ";
  bool first = true;
  for (const Kind& kind : all) {
    const auto found = those(health, [&](const HeadHealth& h) { return h.kind == kind.name; });
    if (found.empty()) continue;
    text += (first ? "" : ", ") + std::to_string(found.size()) + " " +
            (found.size() == 1 ? kind.one : kind.many) + " " + kind.what;
    first = false;
  }
  return text + "." + favourite(health);
}

std::string saturation(const ModelHealth& health) {
  const auto found = those(health, [](const HeadHealth& head) { return head.saturated >= 0.5; });
  if (found.empty())
    return "No head is saturated: none puts 99 % on one key for half of its queries, so gradients "
           "reach queries and keys.";
  return heads_text(std::ssize(found)) + (found.size() == 1 ? " is" : " are") +
         " saturated: 99 % on one key for half of the queries or more, so little gradient passes "
         "the softmax (" +
         some_of(found, [](const HeadHealth& head) { return head.saturated; }) + ").";
}

std::string likeness(const ModelHealth& health) {
  constexpr double alike = 0.95;
  struct Pair {
    const HeadHealth *head, *other;
    double cosine;
  };
  if (health.heads.front().likeness.empty() || std::isnan(health.heads.front().likeness.front()))
    return "";
  std::vector<Pair> pairs;
  for (const HeadHealth& head : health.heads)
    for (Index other = head.head + 1; other < std::ssize(head.likeness); ++other)
      if (const double cosine = head.likeness[static_cast<std::size_t>(other)]; cosine >= alike)
        pairs.push_back({&head, &head + (other - head.head), cosine});
  if (pairs.empty())
    return "No two heads of a layer look at the same keys: the cosine of their probabilities stays "
           "below 0.95.";
  const auto rests = [](const HeadHealth& head) {
    return head.kind == "first" || head.kind == "one";
  };
  const auto resting = std::ranges::count_if(pairs, [&](const Pair& pair) {
    return rests(*pair.head) && rests(*pair.other) && pair.head->favourite == pair.other->favourite;
  });
  const auto best = std::ranges::max_element(pairs, {}, &Pair::cosine);
  return count_text(std::ssize(pairs), "pair", "pairs") +
         " of heads of one layer look at the same keys (cosine 0.95 or more), most of all " +
         name_of(*best->head) + " and " + name_of(*best->other) + " (" + short_text(best->cosine) +
         "); " + (resting == std::ssize(pairs) ? std::string("all") : std::to_string(resting)) +
         " because both rest on the same token.";
}

/// "loss 2.913 instead of 2.871 nats (+1.5 %)" or "rows keep a cosine of 0.98".
std::string effect(const ModelHealth& health, const PatternTrial& trial) {
  const std::string cosine = short_text(trial.cosine);
  if (std::isnan(trial.loss))
    return "the last layer's rows keep a cosine of " + cosine + " with those of the whole model";
  const double change = 100 * (trial.loss / health.loss - 1);
  return "the loss becomes " + loss_text(trial.loss) + " instead of " + loss_text(health.loss) +
         " nats a token (" + (change < 0 ? "-" : "+") + short_text(std::fabs(change)) + " %)";
}

bool harmless(const ModelHealth& health, const PatternTrial& trial) {
  return std::isnan(trial.loss) ? trial.cosine >= 0.99 : trial.loss <= 1.01 * health.loss;
}

std::string savings(const ModelHealth& health, const PatternTrial& trial) {
  std::string text = percent(trial.pairs) + " of the pairs are multiplied";
  if (health.cache_bytes > 0 && trial.cache_bytes < health.cache_bytes)
    text += " and keys and values take " + megabytes(trial.cache_bytes) + " instead of " +
            megabytes(health.cache_bytes);
  return text;
}

bool is_plain_window(const PatternTrial& trial) {
  return trial.window > 0 && trial.name.find("first") == std::string::npos;
}

std::string about(const ModelHealth& health, const PatternTrial& trial) {
  return "With a " + trial.name + " in every layer " + effect(health, trial) + "; " +
         heads_text(trial.served) + " of " + std::to_string(health.heads.size()) + " keep " +
         percent(health.enough) + " of their probability, " + savings(health, trial) + ".";
}

/// The narrowest window that does no harm, or what the widest one costs.
std::string window_advice(const ModelHealth& health) {
  const PatternTrial *best = nullptr, *widest = nullptr;
  for (const PatternTrial& trial : health.trials) {
    if (trial.window == 0 || is_plain_window(trial)) continue;
    if (widest == nullptr) widest = &trial;
    if (harmless(health, trial)) best = &trial;
  }
  if (widest == nullptr) return "";
  if (best != nullptr)
    return about(health, *best) + " That is the narrowest one tried that does no harm to speak of.";
  return about(health, *widest) + " Narrower ones do more harm: keep all keys.";
}

std::string plain_window_advice(const ModelHealth& health) {
  const auto plain = std::ranges::find_if(health.trials, is_plain_window);
  if (plain == health.trials.end()) return "";
  const auto pinned = std::ranges::find_if(health.trials, [&](const PatternTrial& trial) {
    return trial.window == plain->window && !is_plain_window(trial);
  });
  const bool needed = !std::isnan(plain->loss) ? plain->loss > 1.05 * pinned->loss
                                               : plain->cosine < pinned->cosine - 0.02;
  return "Without the first " + std::to_string(health.pinned) + " tokens a window of " +
         std::to_string(plain->window) + " serves " + heads_text(plain->served) + " instead of " +
         std::to_string(pinned->served) + ", and " + effect(health, *plain) +
         (!needed                  ? ": they matter little."
          : health.cache_bytes > 0 ? ": a cache that slides has to keep them (rapt generate "
                                     "--overflow slide --context " +
                                         std::to_string(plain->window) + " --pinned " +
                                         std::to_string(health.pinned) + ")."
                                   : ": a window has to leave them visible.");
}

/// "11-15: 512, 16: 256"
std::string window_list(const ModelHealth& health) {
  std::string list;
  const Index count = std::ssize(health.layers);
  for (Index first = 0, next = 0; first < count; first = next) {
    const std::optional<Index> reach = window_for(health, first);
    for (next = first + 1; next < count && window_for(health, next) == reach;) ++next;
    if (!reach) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(first) +
            (next - first > 1 ? "-" + std::to_string(next - 1) : "") + ": " +
            std::to_string(*reach);
  }
  return list;
}

std::string fitted_advice(const ModelHealth& health) {
  const auto fitted = std::ranges::find_if(health.trials, [](const PatternTrial& trial) {
    return trial.name.starts_with("windows by layer");
  });
  if (fitted == health.trials.end())
    return health.trials.empty()
               ? ""
               : "No layer gets by with a window of " +
                     std::to_string(widest_window(health.tokens)) + " or less and the first " +
                     std::to_string(health.pinned) + " tokens: in each, some head has more than " +
                     percent(1 - health.enough) + " of its probability elsewhere.";
  const std::string layers = window_list(health);
  return "By layer, with the first " + std::to_string(health.pinned) +
         " tokens, these windows leave every head " + percent(health.enough) + " (" + layers +
         "): " + effect(health, *fitted) + ", " + savings(health, *fitted) + ".";
}

std::string hashing_advice(const ModelHealth& health) {
  double mass = 0, keys = 0;
  Index served = 0;
  for (const HeadHealth& head : health.heads) {
    if (std::isnan(head.hashed_mass)) return "";
    mass += head.hashed_mass / static_cast<double>(health.heads.size());
    keys += head.hashed_keys / static_cast<double>(health.heads.size());
    served += head.hashed_mass >= health.enough ? 1 : 0;
  }
  const Lsh how = tried_hashing();
  std::string text = "Hashing (" + std::to_string(how.rounds) + " rounds, chunks of " +
                     std::to_string(how.chunk) + ") meets " + percent(keys) +
                     " of the keys and finds " + percent(mass) + " of the probability; it serves " +
                     heads_text(served);
  for (const PatternTrial& trial : health.trials)
    if (trial.name.starts_with("hashing")) text += ", and " + effect(health, trial);
  return text + (mass < 0.9 ? ". A model has to be trained with it." : ".");
}

}  // namespace

std::vector<std::string> advice_on(const ModelHealth& health) {
  std::vector<std::string> advice;
  for (const auto& say : {kinds, saturation, window_advice, plain_window_advice, fitted_advice,
                          hashing_advice, likeness})
    if (std::string text = say(health); !text.empty()) advice.push_back(std::move(text));
  return advice;
}

}  // namespace rapt::lab
