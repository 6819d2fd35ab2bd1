#include <iostream>
#include <iterator>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "rapt/generate.h"
#include "rapt/train.h"

namespace rapt::cli {
namespace {

struct GenerateCommand {
  std::string model;
  std::vector<std::string> prompts;
  GenerateOptions options;
  std::string overflow = "stop", cache = "f32";
  Index threads = 0;
  bool json = false;
};

const char* text(Generated::Finish finish) {
  switch (finish) {
    case Generated::Finish::end:
      return "end";
    case Generated::Finish::length:
      return "length";
    case Generated::Finish::context:
      return "context";
    default:
      return "cancelled";
  }
}

/// Task models know numbers only: "12 7 7".
std::vector<std::int32_t> numbers_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::int32_t> ids;
  while (!(in >> std::ws).eof()) {
    ids.emplace_back();
    if (!(in >> ids.back()))
      throw std::invalid_argument(fmt::format(
          "generate: the prompt is \"{}\", expected numbers: the model has no tokenizer", text));
  }
  return ids;
}

class Speech {
 public:
  Speech(const LoadedRun& run, bool streams) : run_(run), streams_(streams) {}

  std::vector<std::int32_t> ids_of(const std::string& prompt) const {
    if (!run_.tokenizer) return numbers_in(prompt);
    std::vector<std::int32_t> ids = run_.tokenizer->encode(prompt);
    const bool translates = run_.config.model.kind == ModelConfig::Kind::encoder_decoder;
    if (run_.tokenizer->end() && (translates || ids.empty())) ids.push_back(*run_.tokenizer->end());
    return ids;
  }
  void say(std::int32_t id) const {
    if (!streams_) return;
    fmt::print("{}", run_.tokenizer ? run_.tokenizer->bytes_of(id) : std::to_string(id) + ' ');
    std::fflush(stdout);
  }
  std::string text_of(std::span<const std::int32_t> ids) const {
    if (run_.tokenizer) return run_.tokenizer->decode(ids);
    return fmt::format("{}", fmt::join(ids, " "));
  }

 private:
  const LoadedRun& run_;
  bool streams_;
};

GenerateOptions options_of(const GenerateCommand& command, const LoadedRun& run) {
  GenerateOptions options = command.options;
  options.overflow = command.overflow == "slide" ? GenerateOptions::Overflow::slide
                                                 : GenerateOptions::Overflow::stop;
  options.cache = command.cache == "bf16"   ? CacheType::bf16
                  : command.cache == "int8" ? CacheType::int8
                                            : CacheType::f32;
  if (options.beams > 1) options.sampling.temperature = 0;
  if (run.tokenizer) options.entries = run.tokenizer->entries();
  if (run.tokenizer && run.tokenizer->end()) {
    options.ends = {*run.tokenizer->end()};
    options.start = *run.tokenizer->end();
  }
  return options;
}

void run(GenerateCommand& command) {
  LoadedRun loaded = load_run(command.model);
  for (const std::string& line : loaded.notices) fmt::print(stderr, "{}\n", line);
  if (command.prompts.empty()) {
    command.prompts.emplace_back(std::istreambuf_iterator<char>(std::cin),
                                 std::istreambuf_iterator<char>());
  }
  const bool alone = command.prompts.size() == 1 && !command.json && command.options.beams == 1;
  const Speech speech(loaded, alone);
  std::vector<std::vector<std::int32_t>> prompts;
  for (const std::string& prompt : command.prompts) prompts.push_back(speech.ids_of(prompt));
  if (const std::string why = why_no_cache(loaded.config.model); !why.empty())
    fmt::print(stderr, "the context is read anew for every token: {}\n", why);
  const StopSignals signals;
  GenerateEvents events;
  events.token = [&](Index, std::int32_t id) { speech.say(id); };
  events.cancelled = [] { return StopSignals::caught() != 0; };
  const std::vector<Generated> made = generate(loaded.model, prompts, options_of(command, loaded),
                                               events, Context(command.threads));
  std::vector<Json> cases;
  for (std::size_t i = 0; i < made.size(); ++i) {
    const std::string said = speech.text_of(made[i].ids);
    if (made[i].ids.empty() && made[i].finish == Generated::Finish::context)
      fmt::print(stderr, "prompt {} fills the context already; nothing was written\n", i + 1);
    if (command.json) {
      cases.push_back({{"prompt", command.prompts[i]},
                       {"text", said},
                       {"ids", made[i].ids},
                       {"finish", text(made[i].finish)},
                       {"log_probability", made[i].log_probability}});
    } else {
      fmt::print("{}\n", alone ? "" : said);
    }
  }
  if (command.json)
    fmt::print("{}\n", (cases.size() == 1 ? cases.front() : Json(cases))
                           .dump(2, ' ', false, Json::error_handler_t::replace));
  if (StopSignals::caught() != 0) throw Stopped{StopSignals::caught()};
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Go on from a prompt with a trained model");
  const auto c = std::make_shared<GenerateCommand>();
  c->options.sampling.temperature = 0.8;
  command->add_option("model", c->model, "Folder of a run")->required();
  command->add_option("prompt", c->prompts, "Texts to go on from (default: standard input)");
  command->add_option("--tokens", c->options.tokens, "Most tokens to write")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      ->add_option("--temperature", c->options.sampling.temperature,
                   "0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", c->options.sampling.top_k, "Choose among so many; 0: all")
      ->check(whole_number(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", c->options.sampling.top_p,
                   "Choose among the likeliest that reach this probability together")
      ->capture_default_str();
  command
      ->add_option("--min-p", c->options.sampling.min_p,
                   "Choose among those at least this likely, relative to the likeliest")
      ->capture_default_str();
  command
      ->add_option("--repetition", c->options.sampling.repetition,
                   "Penalty for tokens written lately; 1: none")
      ->capture_default_str();
  command->add_option("--seed", c->options.sampling.seed, "The same seed writes the same text")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--beams", c->options.beams, "Beam search with so many beams")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--context", c->options.context, "Tokens seen at a time; 0: all")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--overflow", c->overflow, "Where the context is full: stop, or slide")
      ->check(CLI::IsMember({"stop", "slide"}))
      ->capture_default_str();
  command->add_option("--pinned", c->options.pinned, "First tokens that sliding keeps")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--cache", c->cache, "What keys and values are kept as")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}))
      ->capture_default_str();
  command->add_option("--threads", c->threads, "Threads (default: all CPUs)")
      ->check(whole_number(1));
  command->add_flag("--json", c->json,
                    "Print JSON: an object for one prompt, an array for several");
  command->footer("Standard output is the text alone. Ctrl-C ends it with exit code 130.");
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
