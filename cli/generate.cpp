#include <algorithm>
#include <chrono>
#include <iostream>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"
#include "cli/models/open_model.h"
#include "cli/models/token_ids.h"
#include "cli/models/utf8.h"
#include "rapt/models/generate.h"

namespace rapt::cli {
namespace {

struct GenerateCommand {
  std::string model;
  std::vector<std::string> prompts;
  GenerateOptions options;
  LoadOptions load;
  bool chat = false;
  std::optional<std::string> system;
  std::optional<Index> threads = {};
  bool json = false;
};

/// `echo` adds one line end.
std::string without_line_end(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string prompt_name(std::integral auto prompt, std::size_t count) {
  return count == 1 ? "the prompt" : fmt::format("prompt {} of {}", prompt + 1, count);
}

/// Encodes prompts and prints what a model writes.
class TokenPrinter {
 public:
  TokenPrinter(const Pretrained& opened, bool streams) : opened_(opened), streams_(streams) {
    if (opened.tokenizer) stream_.emplace(*opened.tokenizer);
  }

  std::vector<std::int32_t> ids_of(const std::string& which, const std::string& prompt,
                                   const GenerateCommand& command) const {
    if (opened_.tokenizer) check_utf8("generate: " + which, prompt, *opened_.tokenizer);
    if (command.chat) return chat_ids(opened_, prompt, command.system);
    if (opened_.tokenizer) return prompt_ids(opened_, prompt);
    if (auto ids = token_ids_in(prompt)) return *std::move(ids);  // a task's: "12 7 7"
    throw std::invalid_argument(fmt::format(
        "generate: the prompt is \"{}\", expected numbers: the model has no tokenizer", prompt));
  }
  void print(std::int32_t id) {
    if (!streams_) return;
    fmt::print("{}", stream_ ? stream_->step(id) : std::to_string(id) + ' ');
    flush_result();
  }
  /// Prints the rest after the last token.
  void finish() {
    if (streams_ && stream_) fmt::print("{}", stream_->finish());
  }
  std::string text_of(std::span<const std::int32_t> ids) const {
    if (opened_.tokenizer) return opened_.tokenizer->decode(ids);
    return fmt::format("{}", fmt::join(ids, " "));
  }

 private:
  const Pretrained& opened_;
  bool streams_;
  std::optional<DecodeStream> stream_;
};

/// Longer prompts take long enough to show progress.
constexpr Index shortest_with_progress = 512;

/// Times tokens. Shows how many there are if they are not printed; beam search gives them last.
class GenerationTimer {
 public:
  GenerationTimer(std::size_t prompts, bool streams) : prompts_(prompts), streams_(streams) {}
  void reading(Index prompt, Index read, Index tokens) const {
    if (tokens <= shortest_with_progress) return;
    progress(
        fmt::format("reading {}: {} of {} tokens", prompt_name(prompt, prompts_), read, tokens));
  }
  void count() {
    if (count_++ == 0) {
      first_ = Now::now();
      end_progress();
    }
    if (!streams_) progress(fmt::format("tokens written: {}", count_));
  }
  double seconds() const { return since(start_); }
  /// On a terminal: the speed after the first token.
  void report() const {
    if (count_ < 2 || !is_terminal()) return;
    if (prompts_ > 1) {  // some are read after the first token of others
      message("{} tokens for {} prompts in {:.2f} s", count_, prompts_, seconds());
      return;
    }
    message("{} tokens, {:.1f} a second; the prompt took {:.2f} s", count_,
            static_cast<double>(count_ - 1) / since(first_),
            std::chrono::duration<double>(first_ - start_).count());
  }

 private:
  using Now = std::chrono::steady_clock;
  static double since(Now::time_point then) {
    return std::chrono::duration<double>(Now::now() - then).count();
  }
  std::size_t prompts_;
  bool streams_;
  Now::time_point start_ = Now::now(), first_ = start_;
  Index count_ = 0;
};

GenerateOptions options_of(const GenerateCommand& command, const Pretrained& opened) {
  GenerateOptions options = command.options;
  options.log_probability = command.json;
  if (opened.tokenizer) options.vocab_size = opened.tokenizer->vocab_size();
  const ModelTokens& special = opened.special_tokens;
  options.stop_tokens = special.eos;
  if (command.chat) options.stop_tokens.push_back(chat_stop_token(opened));
  options.decoder_start_token = special.decoder_start.value_or(special.pad.value_or(0));
  return options;
}

/// Warns once, for the longest prompt, if the context may outgrow the model's training.
void warn_long_prompts(const Pretrained& opened,
                       const std::vector<std::vector<std::int32_t>>& prompts,
                       const GenerateOptions& options) {
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto longest = std::max_element(prompts.begin(), prompts.end(), shorter);
  const std::optional<Index> most = trained_context(opened);
  const Index count = std::ssize(*longest);
  if (!most || options.max_context(count) <= *most) return;
  const std::string written =
      count > *most ? "" : fmt::format(" and up to {} may follow", options.max_new_tokens);
  message("{} has {} tokens{}, the model was trained for {}",
          prompt_name(longest - prompts.begin(), prompts.size()), count, written, *most);
}

/// Several texts each get a header line, as in `head`.
void print_texts(const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts.size() > 1)
      fmt::print("{}==> {} <==\n", i == 0 ? "" : "\n", prompt_name(i, texts.size()));
    fmt::print("{}\n", texts[i]);
  }
}

void warn_full_context(const std::vector<Generated>& made) {
  const auto full = [](const Generated& each) {
    return each.finish_reason == Generated::Finish::context;
  };
  const auto count = std::count_if(made.begin(), made.end(), full);
  if (count == 0) return;
  const std::string which =
      made.size() == 1 ? "the text ends" : fmt::format("{} of {} texts end", count, made.size());
  message("{} because the context is full: see --context-size and --overflow", which);
}

void print_json(const GenerateCommand& command, const std::vector<Generated>& made,
                const std::vector<std::string>& texts, double seconds) {
  std::vector<Json> cases;
  for (std::size_t i = 0; i < made.size(); ++i)
    cases.push_back({{"prompt", command.prompts[i]},
                     {"text", texts[i]},
                     {"ids", made[i].ids},
                     {"finish_reason", to_string(made[i].finish_reason)},
                     {"log_probability", made[i].log_probability.value()},
                     {"seconds", seconds}});
  fmt::print("{}\n", (cases.size() == 1 ? cases.front() : Json(cases))
                         .dump(2, ' ', false, Json::error_handler_t::replace));
}

void run(GenerateCommand& command) {
  Pretrained loaded = open_model(command.model, command.load);
  loaded.model.pack(Context(command.threads));
  if (command.prompts.empty() || is_standard_input(command.prompts)) {
    announce_standard_input("the prompt");
    command.prompts = {without_line_end(read_all(std::cin, "generate: standard input"))};
  }
  const bool alone = command.prompts.size() == 1 && !command.json && command.options.num_beams == 1;
  TokenPrinter printer(loaded, alone);
  std::vector<std::vector<std::int32_t>> prompts;
  if (command.system && loaded.tokenizer)
    check_utf8("generate: --system", *command.system, *loaded.tokenizer);
  for (std::size_t i = 0; i < command.prompts.size(); ++i)
    prompts.push_back(
        printer.ids_of(prompt_name(i, command.prompts.size()), command.prompts[i], command));
  if (command.chat && !loaded.chat_template)
    message("the model has no chat template; using ChatML, whose tokens it has");
  if (const std::optional<std::string> why = why_no_cache(loaded.model.config()))
    message("the whole context is read again for every token: {}", *why);
  const GenerateOptions options = options_of(command, loaded);
  warn_long_prompts(loaded, prompts, options);
  const StopSignals signals;
  GenerationTimer timer(prompts.size(), alone);
  GenerateEvents events;
  events.prefill = [&](Index prompt, Index read, Index tokens) {
    timer.reading(prompt, read, tokens);
  };
  events.token = [&](Index, std::int32_t id) {
    timer.count();
    printer.print(id);
  };
  events.cancelled = [] { return StopSignals::caught() != 0; };
  const std::vector<Generated> made =
      generate(loaded.model, prompts, options, events, Context(command.threads));
  printer.finish();
  if (!alone) end_progress();
  const double taken = timer.seconds();
  std::vector<std::string> texts;  // a streamed one has been printed
  for (const Generated& each : made) texts.push_back(alone ? "" : printer.text_of(each.ids));
  command.json ? print_json(command, made, texts, taken) : print_texts(texts);
  warn_full_context(made);
  timer.report();
  StopSignals::throw_if_caught();
}

void add_sampling_options(CLI::App& command, Sampling& sampling) {
  command.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Choose among this many of the most likely tokens")
      ->check(whole_number(1));
  command
      .add_option("--top-p", sampling.top_p,
                  "Choose among the most likely tokens that reach this probability together")
      ->capture_default_str();
  command
      .add_option("--min-p", sampling.min_p,
                  "Choose among tokens at least this likely, relative to the most likely one")
      ->capture_default_str();
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Penalty for recent tokens; 1: none")
      ->capture_default_str();
  command
      .add_option("--repetition-window", sampling.repetition_window, "How many tokens are recent")
      ->check(whole_number(1))
      ->default_str(std::to_string(sampling.repetition_window.value()));
  command.add_option("--seed", sampling.seed, "The same seed gives the same text")
      ->check(whole_number(0))
      ->capture_default_str();
}

void add_search_options(CLI::App& command, GenerateOptions& options) {
  command.add_option("--num-beams", options.num_beams, "Beam search; nothing is drawn")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      .add_option("--length-penalty", options.length_penalty,
                  "Beams are ranked by log-probability / length^penalty")
      ->check(finite_number())
      ->capture_default_str();
}

void add_context_options(CLI::App& command, GenerateOptions& options) {
  using Overflow = GenerateOptions::Overflow;
  command
      .add_option("--context-size", options.context_size,
                  "Tokens seen at a time (default: as many as the model has positions for)")
      ->check(whole_number(1));
  add_enum_option(command, "--overflow", options.overflow, {Overflow::stop, Overflow::slide},
                  "When the context is full: stop, or slide and forget the oldest tokens");
  command.add_option("--pinned", options.pinned, "Number of first tokens that sliding keeps")
      ->check(whole_number(0))
      ->capture_default_str();
  add_enum_option(command, "--cache-type", options.cache_type,
                  {CacheType::f32, CacheType::bf16, CacheType::int8}, "Type of keys and values");
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt with a trained model");
  const auto c = std::make_shared<GenerateCommand>();
  add_model_option(*command, c->model);
  command->add_option(
      "prompt", c->prompts,
      "Texts to continue (default, and -: standard input; its trailing newline is dropped)");
  command->add_flag("--chat", c->chat, "Prompts are questions to a model that was trained to chat");
  command->add_option("--system", c->system, "With --chat: the system message")->needs("--chat");
  add_load_options(*command, c->load);
  command->add_option("-n,--max-new-tokens", c->options.max_new_tokens, "Most tokens to generate")
      ->check(whole_number(1))
      ->capture_default_str();
  add_sampling_options(*command, c->options.sampling);
  add_search_options(*command, c->options);
  add_context_options(*command, c->options);
  add_threads_option(*command, c->threads);
  command->add_flag("--json", c->json,
                    "Print JSON: an object for one prompt, an array for several");
  command->footer(
      "Standard output is the text alone; several prompts each get a line \"==> prompt 1 of 2 "
      "<==\". Ctrl-C ends it with exit code 130.");
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
