#include "cli/inspect_health.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/health_text.h"
#include "cli/letters.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace rapt::cli {
namespace {

std::string content_of(const std::string& path) {
  if (path == "-") {
    say_what_is_read("the text");
    return all_of(std::cin, "inspect: standard input");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw std::invalid_argument("inspect: " + path + " cannot be read, expected a file of text");
  return all_of(file, "inspect: " + path);
}

std::string words_in(const std::string& path) {
  std::string text = content_of(path);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw std::invalid_argument("inspect: " + path + " is empty, expected a text");
  // No text has zeros.
  if (const std::size_t end = std::min(letters_end(text), text.find('\0')); end < text.size())
    throw std::invalid_argument(
        fmt::format("inspect: {} is no text: byte {} is {:#04x}, expected UTF-8; numbers of tokens "
                    "are read with --ids",
                    path, end, static_cast<unsigned char>(text[end])));
  return text;
}

std::vector<std::int32_t> ids_in(const std::string& path) {
  std::istringstream in(content_of(path));
  std::vector<std::int32_t> ids;
  while (!(in >> std::ws).eof()) {
    ids.emplace_back();
    if (!(in >> ids.back()))
      throw std::invalid_argument(
          fmt::format("inspect: {} holds something else behind {} numbers, expected ids only", path,
                      ids.size() - 1));
  }
  return ids;
}

HealthText text_of(const HealthCommand& command) {
  if (!command.text.empty() && !command.ids.empty())
    throw std::invalid_argument("inspect: --text and --ids, expected one of them");
  HealthText text{.limit = command.limit};
  if (!command.text.empty()) text.text = words_in(command.text);
  if (!command.ids.empty()) text.ids = ids_in(command.ids);
  if (!command.ids.empty() && text.ids.empty())
    throw std::invalid_argument("inspect: " + command.ids + " is empty, expected ids");
  if (command.target.empty()) return text;
  if (command.ids.empty())
    text.target = words_in(command.target);
  else
    text.target_ids = ids_in(command.target);
  return text;
}

void stop_if_asked() {
  if (StopSignals::caught() == 0) return;
  end_progress();
  throw Stopped{StopSignals::caught()};
}

/// Before minutes of work.
void check_page(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw std::invalid_argument("inspect: --html " + path + ": there is no folder " +
                                folder.string());
  check_writable(path);
}

}  // namespace

void add_health_options(CLI::App& command, HealthCommand& options) {
  command.add_option("--text", options.text,
                     "File, or -: run the model on this text and report on every head");
  command.add_option("--ids", options.ids, "File of token ids instead of a text");
  command.add_option("--target", options.target, "What the decoder of an encoder-decoder reads");
  command.add_option("--limit", options.limit, "Read the first so many tokens of the text")
      ->check(whole_number(2));
  command.add_option("--html", options.html, "Write the report on a text as a page to click on");
  add_load_options(command, options.load);
  command.add_option("--threads", options.threads, "With a text: threads (default: all CPUs)")
      ->check(whole_number(1));
}

void check_no_text(const HealthCommand& command) {
  const char* alone = !command.html.empty()     ? "--html"
                      : !command.target.empty() ? "--target"
                      : command.limit > 0       ? "--limit"
                                                : nullptr;
  if (alone != nullptr)
    throw std::invalid_argument(fmt::format(
        "inspect: {} without a text, expected --text FILE or --ids FILE with it", alone));
}

void run_health(const std::string& model, const HealthCommand& command, HealthOutput output) {
  if (model.ends_with(".toml"))
    throw std::invalid_argument("inspect: " + model +
                                " is a config without weights, expected a model for a text");
  const StopSignals signals;
  const HealthText text = text_of(command);
  if (!command.html.empty()) check_page(command.html);
  Pretrained loaded = open_model(model, load_options(command.load));
  const Context context(command.threads);
  loaded.model.pack(context);
  HealthOptions options;
  options.map = command.html.empty() ? 0 : 256;
  options.progress = [](double done, const std::string& what) {
    stop_if_asked();
    progress(progress_bar(done, what));
  };
  ModelHealth health = examine(loaded, text, options, context);
  end_progress();
  health.model = model;
  if (!command.html.empty()) write_whole(command.html, health_html(health));
  if (output == HealthOutput::json)
    fmt::print("{}\n", health_json(health));
  else
    print_health(health);
  flush_result();
  if (!command.html.empty()) message("the page is {}", command.html);
}

}  // namespace rapt::cli
