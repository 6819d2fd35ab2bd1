#include <algorithm>
#include <chrono>
#include <iostream>

#include "cli/commands.h"
#include "cli/letters.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace rapt::cli {
namespace {

struct GenerateCommand {
  std::string model;
  std::vector<std::string> prompts;
  GenerateOptions options;
  std::string overflow = "stop", cache = "f32";
  LoadWords load;
  bool chat = false;
  std::optional<std::string> system;
  Index threads = 0;
  bool json = false;
};

/// As `echo` puts one behind what it was told to say.
std::string without_line_end(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
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

std::string prompt_name(std::size_t prompt, std::size_t count) {
  return count == 1 ? "the prompt" : fmt::format("prompt {} of {}", prompt + 1, count);
}

class Speech {
 public:
  Speech(const Pretrained& opened, bool streams) : opened_(opened), streams_(streams) {
    if (opened.tokenizer) stream_.emplace(*opened.tokenizer);
  }

  std::vector<std::int32_t> ids_of(const std::string& which, const std::string& prompt,
                                   const GenerateCommand& command) const {
    if (opened_.tokenizer) check_letters("generate: " + which, prompt, *opened_.tokenizer);
    if (command.chat) return chat_ids(opened_, prompt, command.system);
    return opened_.tokenizer ? prompt_ids(opened_, prompt) : numbers_in(prompt);
  }
  void say(std::int32_t id) {
    if (!streams_) return;
    fmt::print("{}", stream_ ? stream_->add(id) : std::to_string(id) + ' ');
    flush_result();
  }
  /// What is left when the last token has come.
  void end() {
    if (streams_ && stream_) fmt::print("{}", stream_->finish());
  }
  std::string text_of(std::span<const std::int32_t> ids) const {
    if (opened_.tokenizer) return opened_.tokenizer->decode(ids);
    return fmt::format("{}", fmt::join(ids, " "));
  }

 private:
  const Pretrained& opened_;
  bool streams_;
  std::optional<TextStream> stream_;
};

/// Prompts of more tokens take long enough for somebody to wonder.
constexpr Index shortest_told = 512;

/// When tokens came, of so many prompts. Whoever does not see them sees how many there are, but for
/// those of beam search, which come in the end.
class Clock {
 public:
  Clock(std::size_t prompts, bool streams) : prompts_(prompts), streams_(streams) {}
  void reading(Index prompt, Index read, Index tokens) const {
    if (tokens <= shortest_told) return;
    progress(fmt::format("reading {}: {} of {} tokens",
                         prompt_name(static_cast<std::size_t>(prompt), prompts_), read, tokens));
  }
  void count() {
    if (count_++ == 0) {
      first_ = Now::now();
      end_progress();
    }
    if (!streams_) progress(fmt::format("tokens written: {}", count_));
  }
  double seconds() const { return since(start_); }
  /// To people who watch: how fast it went after the first token.
  void tell() const {
    if (count_ < 2 || !someone_watches()) return;
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
  options.overflow = command.overflow == "slide" ? GenerateOptions::Overflow::slide
                                                 : GenerateOptions::Overflow::stop;
  options.cache = command.cache == "bf16"   ? CacheType::bf16
                  : command.cache == "int8" ? CacheType::int8
                                            : CacheType::f32;
  if (opened.tokenizer) options.entries = opened.tokenizer->entries();
  options.ends = opened.special.ends;
  if (command.chat) options.ends.push_back(chat_end(opened));
  options.start = opened.special.decoder_start.value_or(opened.special.padding.value_or(0));
  return options;
}

/// Positions that the model has not met in training: told once, of the longest prompt.
void tell_long_prompts(const Pretrained& opened,
                       const std::vector<std::vector<std::int32_t>>& prompts,
                       const GenerateOptions& options) {
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto longest = std::max_element(prompts.begin(), prompts.end(), shorter);
  const Index most = made_for(opened), count = std::ssize(*longest);
  if (most == 0 || options.most_seen(count) <= most) return;
  const std::string written =
      count > most ? "" : fmt::format(" and up to {} may follow", options.tokens);
  message("{} has {} tokens{}, the model was made for {}",
          prompt_name(static_cast<std::size_t>(longest - prompts.begin()), prompts.size()), count,
          written, most);
}

/// Texts one below the other; of several each under a line of its own, as `head` has it.
void print_texts(const std::vector<std::string>& texts) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts.size() > 1)
      fmt::print("{}==> {} <==\n", i == 0 ? "" : "\n", prompt_name(i, texts.size()));
    fmt::print("{}\n", texts[i]);
  }
}

/// Texts that might have gone on.
void tell_full_context(const std::vector<Generated>& made) {
  const auto full = [](const Generated& each) { return each.finish == Generated::Finish::context; };
  const auto count = std::count_if(made.begin(), made.end(), full);
  if (count == 0) return;
  const std::string which =
      made.size() == 1 ? "the text ends" : fmt::format("{} of {} texts end", count, made.size());
  message("{} because the context is full: see --context and --overflow", which);
}

void print_json(const GenerateCommand& command, const std::vector<Generated>& made,
                const std::vector<std::string>& texts, double seconds) {
  std::vector<Json> cases;
  for (std::size_t i = 0; i < made.size(); ++i)
    cases.push_back({{"prompt", command.prompts[i]},
                     {"text", texts[i]},
                     {"ids", made[i].ids},
                     {"finish", text(made[i].finish)},
                     {"log_probability", made[i].log_probability.value()},
                     {"seconds", seconds}});
  fmt::print("{}\n", (cases.size() == 1 ? cases.front() : Json(cases))
                         .dump(2, ' ', false, Json::error_handler_t::replace));
}

void run(GenerateCommand& command) {
  Pretrained loaded = open_model(command.model, load_options(command.load));
  loaded.model.pack(Context(command.threads));
  if (command.prompts.empty() || is_standard_input(command.prompts)) {
    say_what_is_read("the prompt");
    command.prompts = {without_line_end(all_of(std::cin, "generate: standard input"))};
  }
  const bool alone = command.prompts.size() == 1 && !command.json && command.options.beams == 1;
  Speech speech(loaded, alone);
  std::vector<std::vector<std::int32_t>> prompts;
  if (command.system && loaded.tokenizer)
    check_letters("generate: --system", *command.system, *loaded.tokenizer);
  for (std::size_t i = 0; i < command.prompts.size(); ++i)
    prompts.push_back(
        speech.ids_of(prompt_name(i, command.prompts.size()), command.prompts[i], command));
  if (command.chat && loaded.chat_template.empty())
    message("the model has no chat template; the form is ChatML, whose tokens it has");
  if (const std::string why = why_no_cache(loaded.model.config()); !why.empty())
    message("the context is read anew for every token: {}", why);
  const GenerateOptions options = options_of(command, loaded);
  tell_long_prompts(loaded, prompts, options);
  const StopSignals signals;
  Clock clock(prompts.size(), alone);
  GenerateEvents events;
  events.reading = [&](Index prompt, Index read, Index tokens) {
    clock.reading(prompt, read, tokens);
  };
  events.token = [&](Index, std::int32_t id) {
    clock.count();
    speech.say(id);
  };
  events.cancelled = [] { return StopSignals::caught() != 0; };
  const std::vector<Generated> made =
      generate(loaded.model, prompts, options, events, Context(command.threads));
  speech.end();
  if (!alone) end_progress();
  const double taken = clock.seconds();
  std::vector<std::string> texts;  // what is streamed has been printed
  for (const Generated& each : made) texts.push_back(alone ? "" : speech.text_of(each.ids));
  command.json ? print_json(command, made, texts, taken) : print_texts(texts);
  tell_full_context(made);
  clock.tell();
  if (StopSignals::caught() != 0) throw Stopped{StopSignals::caught()};
}

void add_sampling_options(CLI::App& command, Sampling& sampling) {
  command.add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Choose among so many; 0: all")
      ->check(whole_number(0))
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "Choose among the likeliest that reach this probability together")
      ->capture_default_str();
  command
      .add_option("--min-p", sampling.min_p,
                  "Choose among those at least this likely, relative to the likeliest")
      ->capture_default_str();
  command
      .add_option("--repetition", sampling.repetition, "Penalty for tokens written lately; 1: none")
      ->capture_default_str();
  command.add_option("--seed", sampling.seed, "The same seed writes the same text")
      ->check(whole_number(0))
      ->capture_default_str();
}

}  // namespace

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Go on from a prompt with a trained model");
  const auto c = std::make_shared<GenerateCommand>();
  command
      ->add_option("model", c->model,
                   "Folder of a run or of a model, GGUF file, or a name: smollm2")
      ->required();
  command->add_option(
      "prompt", c->prompts,
      "Texts to go on from (default, and -: standard input, without the end of its last line)");
  command->add_flag("--chat", c->chat, "Prompts are questions to a model that was trained to chat");
  command
      ->add_option("--system", c->system,
                   "With --chat: what the model is told first (default: what its template says)")
      ->needs("--chat");
  add_load_options(*command, c->load);
  command->add_option("--tokens", c->options.tokens, "Most tokens to write")
      ->check(whole_number(1))
      ->capture_default_str();
  add_sampling_options(*command, c->options.sampling);
  command
      ->add_option("--beams", c->options.beams,
                   "Beam search with so many beams; nothing is drawn then")
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
  command->footer(
      "Standard output is the text alone, of several prompts each under a line \"==> prompt 1 of 2 "
      "<==\". Ctrl-C ends it with exit code 130.");
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
