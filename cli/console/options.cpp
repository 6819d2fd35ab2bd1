#include "cli/console/options.h"

#include "cli/console/output.h"

namespace rapt::cli {

void add_threads_option(CLI::App& command, std::optional<Index>& threads) {
  command.add_option("--threads", threads, "Threads (default: RAPT_THREADS or all CPUs)")
      ->check(whole_number(1));
}

void add_threads_option(CLI::App& command, std::vector<Index>& threads) {
  command
      .add_option("--threads", threads,
                  "Threads, one or several (default: RAPT_THREADS or all CPUs)")
      ->check(whole_number(1));
}

void add_isa_option(CLI::App& command, std::optional<std::string>& isa) {
  command.add_option("--isa", isa, "Instruction set (default: RAPT_ISA or the best)");
}

void add_model_option(CLI::App& command, std::string& model) {
  command
      .add_option("model", model, "Folder of a run or of a model, GGUF file, or a name: smollm2")
      ->required();
}

}  // namespace rapt::cli
