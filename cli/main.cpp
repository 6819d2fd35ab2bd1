#include <csignal>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

#include "cli/commands.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"
#include "cli/console/streams.h"
#include "cli/console/usage_error.h"

namespace {

enum Exit { success = 0, failure = 1, usage = 2, broken_pipe = 128 + SIGPIPE };

constexpr const char* examples = R"text(Examples:
  rapt plan "window(256, 256) | tokens({0})" --tokens 4096
  rapt bench peak
  rapt bench attention --pattern causal --tokens 1024 4096 --backward
  rapt explain --pattern "window(512, 0)" --tokens 8192
  rapt inspect examples/encoder-decoder.toml --batch 32 --tokens 2048
  rapt heads smollm2 --text README.md --limit 1024
  rapt train --data texts/ --set model.layers=4 --out run
  rapt generate run "Once upon a time"
  rapt generate smollm2 --chat "Why is the sky blue?"
  rapt embed minilm --cosine "a cat sleeps" "a kitten is napping"
  rapt lab --out report

RAPT_THREADS and RAPT_ISA set the defaults of --threads and --isa.
Exit codes: 0 success, 1 failure while running, 2 wrong usage, 129, 130 and 143 interrupted,
141 broken pipe.)text";

int parse_and_run(int argc, char** argv) {
  CLI::App app("rapt: exact attention on CPUs, for any attention pattern", "rapt");
  app.require_subcommand(0, 1);
  bool version = false;
  bool json = false;
  app.add_flag("--version", version, "Print the version and what this CPU offers");
  app.add_flag("--json", json, "With --version: print JSON");
  rapt::cli::add_plan(app);
  rapt::cli::add_bench(app);
  rapt::cli::add_explain(app);
  rapt::cli::add_inspect(app);
  rapt::cli::add_heads(app);
  rapt::cli::add_train(app);
  rapt::cli::add_generate(app);
  rapt::cli::add_embed(app);
  rapt::cli::add_convert(app);
  rapt::cli::add_tokenize(app);
  rapt::cli::add_lab(app);
  app.footer(examples);  // last: commands would inherit it
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    throw std::invalid_argument(rapt::cli::usage_error(app, error));
  }
  if (version) {
    rapt::cli::print_version(json);
  } else if (app.get_subcommands().empty()) {
    rapt::cli::message(app.help());
    return usage;
  }
  return success;
}

int complain(const char* what, Exit code) {
  rapt::cli::end_progress();
  std::fprintf(stderr, "rapt: %s\n", what);  // allocates nothing: memory may be exhausted
  return code;
}

/// A reader that closes the pipe (`rapt plan ... | head`) gets no message, but the exit code that
/// other programs have then. Anything else is a failure.
int report(const std::system_error& error) {
  if (error.code() == std::errc::broken_pipe) return broken_pipe;
  return complain(error.what(), failure);
}

int finish_output(int code) {
  try {
    rapt::cli::flush_result();
    return code;
  } catch (const std::system_error& error) {
    return code == success ? report(error) : code;
  }
}

int run(int argc, char** argv) {
  try {
    return finish_output(parse_and_run(argc, argv));
  } catch (const rapt::cli::Stopped& stopped) {
    return finish_output(128 + stopped.signal);
  } catch (const std::invalid_argument& error) {
    return complain(error.what(), usage);
  } catch (const std::bad_alloc&) {
    return complain("not enough memory", failure);
  } catch (const std::system_error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return complain(error.what(), failure);
  }
}

}  // namespace

int main(int argc, char** argv) {
  rapt::cli::prepare_streams();
  return run(argc, argv);
}
