#include "rapt/models/heads.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"
#include "cli/models/head_report_text.h"
#include "cli/models/open_model.h"
#include "cli/models/utf8.h"

namespace rapt::cli {
namespace {

struct HeadsCommand {
  std::string model;
  std::string text, ids, target;  // files; "-": standard input
  std::string html;               // file of the page; "": none
  LoadOptions load;
  std::optional<Index> limit;
  std::optional<Index> threads = {};
  bool json = false;
};

std::string content_of(const std::string& path) {
  if (path == "-") {
    announce_standard_input("the text");
    return read_all(std::cin, "heads: standard input");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw std::invalid_argument("heads: " + path + " cannot be read, expected a file of text");
  return read_all(file, "heads: " + path);
}

std::string text_in(const std::string& path) {
  std::string text = content_of(path);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw std::invalid_argument("heads: " + path + " is empty, expected a text");
  const std::size_t end = std::min(valid_utf8_length(text), text.find('\0'));  // text has no zeros
  if (end < text.size())
    throw std::invalid_argument(
        fmt::format("heads: {} is no text: byte {} is {:#04x}, expected UTF-8; token ids are read "
                    "with --ids",
                    path, end, static_cast<unsigned char>(text[end])));
  return text;
}

std::vector<std::int32_t> ids_of_file(const std::string& path) {
  std::istringstream in(content_of(path));
  std::vector<std::int32_t> ids;
  while (!(in >> std::ws).eof()) {
    ids.emplace_back();
    if (!(in >> ids.back()))
      throw std::invalid_argument(
          fmt::format("heads: {} has something else after {} numbers, expected ids only", path,
                      ids.size() - 1));
  }
  if (ids.empty()) throw std::invalid_argument("heads: " + path + " is empty, expected ids");
  return ids;
}

HeadReportText text_of(const HeadsCommand& command) {
  if (command.text.empty() == command.ids.empty())
    throw std::invalid_argument(command.text.empty()
                                    ? "heads: no text, expected --text FILE or --ids FILE"
                                    : "heads: --text and --ids, expected one of them");
  HeadReportText text;
  text.limit = command.limit;
  if (!command.text.empty()) text.text = text_in(command.text);
  if (!command.ids.empty()) text.ids = ids_of_file(command.ids);
  if (command.target.empty()) return text;
  if (command.ids.empty())
    text.target = text_in(command.target);
  else
    text.target_ids = ids_of_file(command.target);
  return text;
}

/// Before minutes of work.
void check_page(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw std::invalid_argument("heads: --html " + path + ": there is no folder " +
                                folder.string());
  check_writable(path);
}

void run(const HeadsCommand& command) {
  if (command.model.ends_with(".toml"))
    throw std::invalid_argument("heads: " + command.model +
                                " is a config without weights, expected a model");
  const StopSignals signals;
  const HeadReportText text = text_of(command);
  if (!command.html.empty()) check_page(command.html);
  Pretrained loaded = open_model(command.model, command.load);
  const Context context(command.threads);
  loaded.model.pack(context);
  HeadReportOptions options;
  if (command.html.empty()) options.map_size.reset();
  options.progress = [](double done, const std::string& step) {
    StopSignals::throw_if_caught();
    progress(progress_bar(done, step));
  };
  HeadReport report = heads(loaded, text, options, context);
  end_progress();
  report.model = command.model;
  if (!command.html.empty()) write_whole(command.html, to_html(report));
  if (command.json)
    fmt::print("{}\n", to_json(report));
  else
    print_report(report);
  flush_result();
  if (!command.html.empty()) message("the page is {}", command.html);
}

}  // namespace

void add_heads(CLI::App& app) {
  CLI::App* command = app.add_subcommand("heads", "Show what each head of a model does on a text");
  const auto c = std::make_shared<HeadsCommand>();
  add_model_option(*command, c->model);
  command->add_option("--text", c->text, "File of text, or -");
  command->add_option("--ids", c->ids, "File of token ids instead of a text");
  command->add_option("--target", c->target, "What the decoder of an encoder-decoder reads");
  command->add_option("--limit", c->limit, "Read the first N tokens only")->check(whole_number(2));
  command->add_option("--html", c->html, "Write the report as an interactive page");
  add_load_options(*command, c->load);
  add_threads_option(*command, c->threads);
  command->add_flag("--json", c->json, "Print JSON");
  command->footer(
      "rapt heads smollm2 --text README.md --limit 1024 --html heads.html\n"
      "reports entropy, saturation, sinks, reach and similarity of every head, and what narrower\n"
      "attention would cost and save.");
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
