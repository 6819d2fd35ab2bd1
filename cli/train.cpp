#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"
#include "rapt/models/train.h"

namespace rapt::cli {
namespace {

struct TrainCommand {
  std::string data, folder = "run";
  std::optional<std::string> config = {};
  std::vector<std::string> sets;
  std::optional<Index> threads = {};
  bool resume = false, force = false;
};

std::string time_text(double seconds) {
  const auto whole = static_cast<Index>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

/// One line that is rewritten on a terminal; elsewhere a plain line, at most every ten seconds.
class ProgressLine {
 public:
  void show(const TrainProgress& p) {
    const std::string line = fmt::format(
        "step {}/{}  loss {:.4f}  lr {:.2e}  grad {:.2f}  {:.0f} tokens/s  {:.0f} % of peak  {} "
        "left",
        p.step, p.steps, p.loss, p.learning_rate, p.gradient_norm, p.tokens_per_second,
        100 * p.of_peak, time_text(p.seconds_left));
    if (is_terminal()) return progress(line);
    const auto now = std::chrono::steady_clock::now();
    if (p.step != p.steps && now - last_ < std::chrono::seconds(10)) return;
    last_ = now;
    message(line);
  }

 private:
  std::chrono::steady_clock::time_point last_{};
};

void say(const std::string& line) {
  end_progress();
  message(line);
}

const char* sentence(TrainResult::Finish reason) {
  switch (reason) {
    case TrainResult::Finish::steps:
      return "all steps done";
    case TrainResult::Finish::patience:
      return "the evaluation loss does not fall any more";
    case TrainResult::Finish::accuracy:
      return "target accuracy reached";
    default:
      return "stopped";
  }
}

/// Names the runs next to a folder that holds none.
void check_run_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  if (is_run_folder(folder)) return;
  std::vector<std::string> others;
  std::error_code error;
  const fs::path beside = fs::absolute(folder.empty() ? "." : folder).parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(beside, error))
    if (is_run_folder(entry.path().string())) others.push_back(entry.path().filename().string());
  std::sort(others.begin(), others.end());
  if (others.size() > 8) others.resize(8);
  throw std::runtime_error(fmt::format(
      "train: {} holds no run to resume{}", folder,
      others.empty() ? "" : fmt::format("; beside it there are {}", fmt::join(others, ", "))));
}

/// Trains, and names the flags that help if the folder is taken.
TrainResult train_in(const TrainCommand& command, const RunConfig& config,
                     const TrainEvents& events) {
  try {
    const ExistingRun existing_run = command.force    ? ExistingRun::overwrite
                                     : command.resume ? ExistingRun::resume
                                                      : ExistingRun::refuse;
    return train(config, command.folder, existing_run, events, Context(command.threads));
  } catch (const FolderNotEmpty& error) {
    const bool run = error.holds() == FolderNotEmpty::Holds::run;
    throw std::invalid_argument(
        std::string(error.what()) + "; " +
        (run ? "--resume continues it, --force starts it over, " : "--force overwrites it, ") +
        "--out names another folder");
  }
}

void run(const TrainCommand& command) {
  std::vector<std::string> sets = command.sets;
  if (!command.data.empty()) sets.push_back("data.path=" + command.data);
  // --resume alone takes the config of the folder.
  const bool alone = command.resume && !command.config;
  if (alone) check_run_folder(command.folder);
  const RunConfig config =
      read_run_config(alone ? command.folder + "/config.toml" : command.config, sets);
  if (config.data.path.empty())
    throw std::invalid_argument(
        "train: no data; give --data FILE, --data FOLDER or --data task:copy");
  const StopSignals signals;
  ProgressLine line;
  TrainEvents events;
  events.notice = say;
  events.progress = [&](const TrainProgress& p) { line.show(p); };
  events.evaluation = [](const Evaluation& e) {
    say(fmt::format("step {}: evaluation loss {:.4f}, accuracy {:.2f} %, exact {:.2f} %", e.step,
                    e.loss, 100 * e.accuracy, 100 * e.exact));
  };
  events.stop = [] { return StopSignals::caught() != 0; };
  const TrainResult result = train_in(command, config, events);
  if (result.steps_taken == 0 && result.finish_reason == TrainResult::Finish::steps) {
    say(fmt::format("step {}: nothing left to do; a larger train.steps continues", result.step));
    return;
  }
  if (result.steps_taken == 0 && result.finish_reason == TrainResult::Finish::stopped)
    say("stopped before a step was taken; nothing has changed");
  else
    say(fmt::format("step {}: {}, loss {:.4f}; saved in {}", result.step,
                    sentence(result.finish_reason), result.loss, command.folder));
  if (result.finish_reason == TrainResult::Finish::stopped) throw Stopped{StopSignals::caught()};
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a Transformer, or resume a run");
  const auto options = std::make_shared<TrainCommand>();
  command->add_option(
      "--data", options->data,
      "Text file, folder, tab-separated pairs, or task:copy, task:recall, task:sort");
  command->add_option("--config", options->config, "TOML file with model, data and train sections");
  command->add_option("--set", options->sets, "section.key=value, over the file; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--out", options->folder, "Folder of the run")->capture_default_str();
  add_threads_option(*command, options->threads);
  CLI::Option* resume = command->add_flag("--resume", options->resume,
                                          "Continue from the newest checkpoint of the folder");
  command->add_flag("--force", options->force, "Start over in a folder that holds a run")
      ->excludes(resume);
  command->footer(
      "The folder gets config.toml, tokenizer.json, metrics.jsonl and checkpoints. Ctrl-C "
      "finishes\n"
      "the step, saves and exits with code 130, SIGTERM with 143, SIGHUP with 129; --resume\n"
      "resumes bit for bit. Three failed saves in a row end the run.");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
