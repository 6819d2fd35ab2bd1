#include "cli/console/usage_error.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "cli/console/suggestion.h"

namespace rapt::cli {
namespace {

/// Options of rapt 0.1 and what they are called now.
struct Renamed {
  std::string_view command, old_name, now;
};
constexpr std::array renamed = {
    Renamed{"generate", "--tokens", "--max-new-tokens"},
    Renamed{"generate", "--repetition", "--repetition-penalty"},
    Renamed{"generate", "--beams", "--num-beams"},
    Renamed{"generate", "--context", "--context-size"},
    Renamed{"generate", "--cache", "--cache-type"},
    Renamed{"generate", "--weights", "--weight-type"},
    Renamed{"embed", "--weights", "--weight-type"},
    Renamed{"tokenize", "--frame", "--add-special-tokens"},
    Renamed{"tokenize", "--tokens", "--list"},
    Renamed{"explain", "--cache", "--cache-type"},
    Renamed{"decode", "--dtype", "--cache-type"},
    Renamed{"rope", "--apart", "--out-of-place"},
    Renamed{"tokenize", "--special", "--parse-special, or with --decode --no-skip-special-tokens"},
    Renamed{"convert", "--shard", "--max-shard-size"},
    Renamed{"inspect", "--text", "rapt heads MODEL --text FILE"},
    Renamed{"inspect", "--ids", "rapt heads MODEL --ids FILE"},
    Renamed{"inspect", "--html", "rapt heads MODEL --text FILE --html FILE"},
    Renamed{"inspect", "--target", "rapt heads MODEL --text FILE --target FILE"},
    Renamed{"inspect", "--limit", "rapt heads MODEL --text FILE --limit N"},
};

/// The command that was named last.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.back());
}

std::vector<std::string> known_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(child->get_name());
  return words;
}

std::string suggestion(const CLI::App& command, const std::string& word) {
  const std::string_view name = std::string_view(word).substr(0, word.find('='));
  for (const Renamed& each : renamed)
    if (command.get_name() == each.command && name == each.old_name) return std::string(each.now);
  return nearest_word(word, known_words(command));
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
