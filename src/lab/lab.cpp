#include "rapt/models/lab.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "lab/lab.h"

namespace rapt {
using namespace detail;
namespace {

struct Experiment {
  const char* name;
  const char* title;
  double share;  // of the time of all
  lab::Section (*run)(const lab::Lab& lab);
};

constexpr std::array experiments = {
    Experiment{"scale", "Why are scores divided by √d?", 0.1, lab::why_square_root},
    Experiment{"gradients", "When does softmax saturate, and why do gradients vanish?", 0.35,
               lab::where_gradients_die},
    Experiment{"length", "What happens with long inputs?", 0.35, lab::long_inputs},
    Experiment{"sparsity", "How sparse is attention, and what may be left out?", 0.18,
               lab::how_sparse},
    Experiment{"positions", "How does attention know where a token is?", 0.02,
               lab::position_schemes}};

std::string known_names() {
  std::string names;
  for (const Experiment& experiment : experiments)
    names += (names.empty() ? "" : ", ") + std::string(experiment.name);
  return names;
}

std::vector<const Experiment*> chosen(const std::vector<std::string>& names) {
  std::vector<const Experiment*> found;
  for (const std::string& name : names)
    check(std::ranges::any_of(experiments, [&](const Experiment& e) { return name == e.name; }),
          "lab: there is no experiment \"", name, "\", expected one of ", known_names());
  for (const Experiment& experiment : experiments)
    if (names.empty() || std::ranges::find(names, experiment.name) != names.end())
      found.push_back(&experiment);
  return found;
}

// For a reader who has never seen attention.
std::vector<lab::Word> words() {
  return {
      {"query, key, value",
       "Every token makes three vectors. Its <b>query</b> says what it looks for, its <b>key</b> "
       "what it can be found by, its <b>value</b> what it has to give."},
      {"score",
       "Query times key, <i>q·k</i>: a sum of <i>d</i> products, where <i>d</i> is the length of "
       "the vectors. A large score means that the query wants this key."},
      {"softmax",
       "Turns the scores of a query into <b>probabilities</b>: positive numbers that add up to 1, "
       "each proportional to e<sup>score</sup>. The token gets the values, mixed by them."},
      {"entropy",
       "How widely the probabilities of a query spread: 0 if one key has all of it, the logarithm "
       "of n if n keys share it alike."},
      {"row, head", "The probabilities of one query are a row; one set of q, k and v is a head."},
      {"scale", "A factor on all scores before softmax. The usual one is 1/√d."},
      {"saturation",
       "One probability is nearly 1 and all others nearly 0. Small changes of the scores then "
       "change nothing."},
      {"standard normal",
       "Random numbers around 0 with a spread of 1, as a fresh layer makes them. Measurements "
       "without a model start from such queries and keys."},
      {"gradient",
       "How much the result would change if a number changed a little. Training follows it; where "
       "it is 0, nothing is learned."},
      {"pattern",
       "Which keys a query may see: all (dense), those before it (causal), near ones (window), "
       "those in the same hash bucket (LSH)."}};
}

lab::Page empty_page(const LabOptions& options, const Context& context) {
  return {
      .title = "What attention does",
      .text =
          "Attention lets every token of a text look at the others and take what it needs. This "
          "page shows what decides how well that works: the scale of the scores, the softmax "
          "over them, the length of the text, who may look at whom, and how positions are "
          "encoded. Everything was measured with rapt's own kernels on this machine. Move the "
          "sliders, hover over the marks; each figure has its numbers.",
      .facts = {"rapt " + version() + ", " + context.isa() + ", " +
                std::to_string(context.threads()) +
                (context.threads() == 1 ? " thread" : " threads") + ", seed " +
                std::to_string(options.seed)},
      .words = words()};
}

}  // namespace

std::vector<LabExperiment> lab_experiments() {
  std::vector<LabExperiment> all;
  for (const Experiment& experiment : experiments)
    all.push_back({experiment.name, experiment.title});
  return all;
}

LabReport run_lab(const LabOptions& options, const Context& context) {
  const std::vector<const Experiment*> wanted = chosen(options.experiments);
  double all = 0, before = 0;
  for (const Experiment* experiment : wanted) all += experiment->share;
  lab::Page page = empty_page(options, context);
  for (const Experiment* experiment : wanted) {
    const auto tell = [&](double done) {
      if (options.progress)
        options.progress((before + done * experiment->share) / all, experiment->title);
    };
    tell(0);
    page.sections.push_back(experiment->run({context, options.seed, tell}));
    if (options.command) page.sections.back().command = options.command(experiment->name);
    before += experiment->share;
  }
  return {lab::html_of(page), lab::json_of(page).dump(1)};
}

}  // namespace rapt
