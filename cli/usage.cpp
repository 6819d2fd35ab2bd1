#include "cli/usage.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace rapt::cli {
namespace {

/// Insertions, deletions and replacements that turn one word into the other.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// The command that was named last, and everything it understands.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.back());
}

std::vector<std::string> known_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  }
  for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(child->get_name());
  return words;
}

std::string suggestion(const CLI::App& command, const std::string& word) {
  std::string best;
  std::size_t distance = 3;  // further away it is a guess
  for (const std::string& known : known_words(command)) {
    if (edits(word, known) >= distance) continue;
    distance = edits(word, known);
    best = known;
  }
  return best;
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> extras = app.remaining(true);
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  const bool unclear =
      !extras.empty() && (is(CLI::ExitCodes::ExtrasError) || is(CLI::ExitCodes::RequiredError));
  std::string text = error.what();
  if (unclear) {
    const auto option = std::find_if(extras.begin(), extras.end(),
                                     [](const std::string& word) { return word.starts_with('-'); });
    const std::string word = (option == extras.end() ? extras.front() : *option).substr(0, 80);
    const std::string near = suggestion(command, word);
    text =
        "\"" + word + "\" is not known here" + (near.empty() ? "" : "; did you mean " + near + "?");
  }
  if (unclear) return text + "\nRun with --help to see what is.";
  if (is(CLI::ExitCodes::RequiredError)) return text + "\nRun with --help to see what is needed.";
  return text;
}

}  // namespace rapt::cli
