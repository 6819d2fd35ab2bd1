#include "head_report/head_advice.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "base/indexed_vector.h"
#include "head_report/pattern_trial.h"
#include "lab/experiments/numbers.h"

namespace rapt::detail {
namespace {

using lab::short_text;

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
std::string name_of(const HeadStats& head) {
  return "L" + std::to_string(head.layer) + "H" + std::to_string(head.head);
}

/// The names of some heads, those with the most first.
std::string some_of(std::vector<const HeadStats*> heads,
                    const std::function<double(const HeadStats&)>& by) {
  constexpr std::size_t most = 6;
  std::ranges::stable_sort(heads,
                           [&](const HeadStats* a, const HeadStats* b) { return by(*a) > by(*b); });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, heads.size()); ++i)
    text += (i == 0 ? "" : ", ") + name_of(*heads[i]);
  return heads.size() > most ? text + ", ..." : text;
}

std::vector<const HeadStats*> those(const HeadReport& report,
                                    const std::function<bool(const HeadStats&)>& which) {
  std::vector<const HeadStats*> found;
  for (const HeadStats& head : report.heads)
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
std::string favourite(const HeadReport& report) {
  std::map<std::pair<bool, Index>, Index> heads;  // of an encoder or not, token: how many
  for (const HeadStats* head :
       those(report, [](const HeadStats& h) { return h.kind == HeadStats::Kind::one; })) {
    const LayerPattern& layer = element(report.layers, head->layer);
    ++heads[{report.sources > 0 && layer.name.starts_with("encoder"), head->favourite}];
  }
  if (heads.empty()) return "";
  const auto most =
      std::ranges::max_element(heads, {}, [](const auto& each) { return each.second; });
  const auto& [of_source, token] = most->first;
  const std::vector<std::string>& texts = of_source ? report.source_texts : report.texts;
  const std::string text =
      token < std::ssize(texts) ? " (\"" + one_line(element(texts, token)) + "\")" : "";
  return " That other token is number " + std::to_string(token) + " of " +
         std::to_string(of_source ? report.sources : report.tokens) + text + " for " +
         std::to_string(most->second) + " of them.";
}

std::string kinds(const HeadReport& report) {
  using enum HeadStats::Kind;
  struct Words {
    HeadStats::Kind kind;
    const char *one, *many, *what;
  };
  constexpr Words all[] = {{first, "rests", "rest", "on the first token"},
                           {one, "rests", "rest", "on one other token"},
                           {self, "looks", "look", "at the query's own token"},
                           {neighbour, "looks", "look", "at the token beside"},
                           {near, "has", "have", "90 % within 16 tokens"},
                           {even, "looks", "look", "at everything alike"},
                           {mixed, "does", "do", "none of this"}};
  std::string list;
  for (const Words& words : all) {
    const auto found = those(report, [&](const HeadStats& h) { return h.kind == words.kind; });
    if (found.empty()) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(found.size()) + " " +
            (found.size() == 1 ? words.one : words.many) + " " + words.what;
  }
  return "Of " + heads_text(std::ssize(report.heads)) + " " + list + "." + favourite(report);
}

std::string saturation(const HeadReport& report) {
  const auto found = those(report, [](const HeadStats& head) { return head.saturated >= 0.5; });
  if (found.empty())
    return "No head is saturated: none puts 99 % on one key for half of its queries, so gradients "
           "reach queries and keys.";
  return heads_text(std::ssize(found)) + (found.size() == 1 ? " is" : " are") +
         " saturated: 99 % on one key for half of the queries or more, so little gradient passes "
         "the softmax (" +
         some_of(found, [](const HeadStats& head) { return head.saturated; }) + ").";
}

std::string similarity(const HeadReport& report) {
  constexpr double alike = 0.95;
  struct Pair {
    const HeadStats *head, *other;
    double cosine;
  };
  if (report.heads.front().similarity.empty() ||
      std::isnan(report.heads.front().similarity.front()))
    return "";
  std::vector<Pair> pairs;
  for (const HeadStats& head : report.heads)
    for (Index other = head.head + 1; other < std::ssize(head.similarity); ++other)
      if (const double cosine = element(head.similarity, other); cosine >= alike)
        pairs.push_back({&head, &head + (other - head.head), cosine});
  if (pairs.empty())
    return "No two heads of a layer look at the same keys: the cosine of their probabilities stays "
           "below 0.95.";
  const auto rests = [](const HeadStats& head) {
    return head.kind == HeadStats::Kind::first || head.kind == HeadStats::Kind::one;
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
std::string effect(const HeadReport& report, const PatternTrial& trial) {
  const std::string cosine = short_text(trial.cosine);
  if (!trial.loss)
    return "the last layer's rows keep a cosine of " + cosine + " with those of the whole model";
  const double change = 100 * (*trial.loss / *report.loss - 1);
  return "the loss becomes " + loss_text(*trial.loss) + " instead of " + loss_text(*report.loss) +
         " nats a token (" + (change < 0 ? "-" : "+") + short_text(std::fabs(change)) + " %)";
}

bool harmless(const HeadReport& report, const PatternTrial& trial) {
  return trial.loss ? *trial.loss <= 1.01 * *report.loss : trial.cosine >= 0.99;
}

std::string savings(const HeadReport& report, const PatternTrial& trial) {
  std::string text = percent(trial.pairs) + " of the pairs are multiplied";
  if (report.cache_bytes > 0 && trial.cache_bytes < report.cache_bytes)
    text += " and keys and values take " + megabytes(trial.cache_bytes) + " instead of " +
            megabytes(report.cache_bytes);
  return text;
}

bool is_plain_window(const PatternTrial& trial) {
  return trial.window && trial.name.find("first") == std::string::npos;
}

std::string about(const HeadReport& report, const PatternTrial& trial) {
  return "With a " + trial.name + " in every layer " + effect(report, trial) + "; " +
         heads_text(trial.served) + " of " + std::to_string(report.heads.size()) + " keep " +
         percent(report.enough) + " of their probability, " + savings(report, trial) + ".";
}

/// The narrowest window that does no harm, or what the widest one costs.
std::string window_advice(const HeadReport& report) {
  const PatternTrial *best = nullptr, *widest = nullptr;
  for (const PatternTrial& trial : report.trials) {
    if (!trial.window || is_plain_window(trial)) continue;
    if (widest == nullptr) widest = &trial;
    if (harmless(report, trial)) best = &trial;
  }
  if (widest == nullptr) return "";
  if (best != nullptr)
    return about(report, *best) + " That is the narrowest one tried that does no harm to speak of.";
  return about(report, *widest) + " Narrower ones do more harm: keep all keys.";
}

std::string plain_window_advice(const HeadReport& report) {
  const auto plain = std::ranges::find_if(report.trials, is_plain_window);
  if (plain == report.trials.end()) return "";
  const auto pinned = std::ranges::find_if(report.trials, [&](const PatternTrial& trial) {
    return trial.window == plain->window && !is_plain_window(trial);
  });
  const bool needed =
      plain->loss ? *plain->loss > 1.05 * *pinned->loss : plain->cosine < pinned->cosine - 0.02;
  return "Without the first " + std::to_string(report.pinned) + " tokens a window of " +
         std::to_string(*plain->window) + " serves " + heads_text(plain->served) + " instead of " +
         std::to_string(pinned->served) + ", and " + effect(report, *plain) +
         (!needed                  ? ": they matter little."
          : report.cache_bytes > 0 ? ": a sliding context has to keep them (overflow = slide, "
                                     "context_size = " +
                                         std::to_string(*plain->window) +
                                         ", pinned = " + std::to_string(report.pinned) + ")."
                                   : ": a window has to leave them visible.");
}

/// "11-15: 512, 16: 256"
std::string window_list(const HeadReport& report) {
  std::string list;
  const Index count = std::ssize(report.layers);
  for (Index first = 0, next = 0; first < count; first = next) {
    const std::optional<Index> reach = window_for(report, first);
    for (next = first + 1; next < count && window_for(report, next) == reach;) ++next;
    if (!reach) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(first) +
            (next - first > 1 ? "-" + std::to_string(next - 1) : "") + ": " +
            std::to_string(*reach);
  }
  return list;
}

std::string fitted_advice(const HeadReport& report) {
  const auto fitted = std::ranges::find_if(report.trials, [](const PatternTrial& trial) {
    return trial.name.starts_with("windows by layer");
  });
  if (fitted == report.trials.end())
    return report.trials.empty()
               ? ""
               : "No layer gets by with a window of " +
                     std::to_string(widest_window(report.tokens).value_or(0)) +
                     " or less and the first " + std::to_string(report.pinned) +
                     " tokens: in each, some head has more than " + percent(1 - report.enough) +
                     " of its probability elsewhere.";
  const std::string layers = window_list(report);
  return "By layer, with the first " + std::to_string(report.pinned) +
         " tokens, these windows leave every head " + percent(report.enough) + " (" + layers +
         "): " + effect(report, *fitted) + ", " + savings(report, *fitted) + ".";
}

std::string hashing_advice(const HeadReport& report) {
  double mass = 0, keys = 0;
  Index served = 0;
  for (const HeadStats& head : report.heads) {
    if (!head.hashed_mass) return "";
    mass += *head.hashed_mass / static_cast<double>(report.heads.size());
    keys += *head.hashed_keys / static_cast<double>(report.heads.size());
    served += *head.hashed_mass >= report.enough ? 1 : 0;
  }
  const Lsh how = tried_hashing();
  std::string text = "Hashing (" + std::to_string(how.rounds) + " rounds, chunks of " +
                     std::to_string(how.chunk) + ") meets " + percent(keys) +
                     " of the keys and finds " + percent(mass) + " of the probability; it serves " +
                     heads_text(served);
  for (const PatternTrial& trial : report.trials)
    if (trial.name.starts_with("hashing")) text += ", and " + effect(report, trial);
  return text + (mass < 0.9 ? ". A model has to be trained with it." : ".");
}

}  // namespace

std::vector<std::string> advice_on(const HeadReport& report) {
  std::vector<std::string> advice;
  for (const auto& topic : {kinds, saturation, window_advice, plain_window_advice, fitted_advice,
                            hashing_advice, similarity})
    if (std::string text = topic(report); !text.empty()) advice.push_back(std::move(text));
  return advice;
}

}  // namespace rapt::detail
