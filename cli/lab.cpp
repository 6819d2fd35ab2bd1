#include "rapt/models/lab.h"

#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"

namespace rapt::cli {
namespace {

struct LabCommand {
  LabOptions options;
  std::string folder = ".";
  std::optional<Index> threads = {};
  bool list = false;
};

/// Finds out before the work whether its result can be written.
void prepare(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(folder.string() + ": cannot write there: " + error.message());
  for (const char* name : {"report.html", "report.json"}) check_writable(folder / name);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const LabExperiment& experiment : lab_experiments()) all.push_back(experiment.name);
  return all;
}

void print_list() {
  for (const LabExperiment& experiment : lab_experiments())
    fmt::print("{:<12}{}\n", experiment.name, experiment.title);
}

void run(LabCommand& command) {
  if (command.list) return print_list();
  const StopSignals signals;
  prepare(command.folder);
  command.options.progress = [](double done, const std::string& what) {
    StopSignals::throw_if_caught();
    progress(progress_bar(done, what));
  };
  command.options.command = [&](const std::string& experiment) {
    const std::uint64_t seed = command.options.seed;
    return fmt::format("rapt lab {0} --out {0}{1}", experiment,
                       seed == 1 ? "" : fmt::format(" --seed {}", seed));
  };
  const LabReport report = run_lab(command.options, Context(command.threads));
  end_progress();
  const std::filesystem::path folder = command.folder;
  write_whole(folder / "report.html", report.html);
  write_whole(folder / "report.json", report.json);
  fmt::print("{}\n{}\n", (folder / "report.html").string(), (folder / "report.json").string());
}

}  // namespace

void add_lab(CLI::App& app) {
  auto* command = app.add_subcommand("lab", "Measure what attention does and draw it: report.html");
  auto c = std::make_shared<LabCommand>();
  command
      ->add_option("experiments", c->options.experiments,
                   "Some of `rapt lab --list` (default: all)")
      ->check(CLI::IsMember(names()));
  command->add_flag("--list", c->list, "Print the experiments and their questions");
  command->add_option("--out", c->folder, "Folder of report.html and report.json")
      ->capture_default_str();
  command->add_option("--seed", c->options.seed, "Seed of the random numbers")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_threads_option(*command, c->threads);
  command->callback([c] { run(*c); });
  command->footer(
      "The page needs no network. All experiments take about two minutes on two cores.\n"
      "For your own model: rapt heads MODEL --text FILE");
}

}  // namespace rapt::cli
