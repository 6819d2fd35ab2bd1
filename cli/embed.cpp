#include <cmath>
#include <iostream>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/console/stop_signals.h"
#include "cli/models/open_model.h"
#include "cli/models/utf8.h"

namespace rapt::cli {
namespace {

struct EmbedCommand {
  std::string model;
  std::vector<std::string> texts;
  LoadOptions load;
  std::optional<Index> threads = {};
  bool json = false, cosine = false;
};

std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

double cosine_of(const float* a, const float* b, Index width) {
  double ab = 0, aa = 0, bb = 0;
  for (Index i = 0; i < width; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::max(std::sqrt(aa * bb), 1e-300);
}

void print_cosines(const EmbedCommand& command, const Tensor& vectors) {
  const Index width = vectors.shape()[1];
  for (std::size_t i = 0; i + 1 < command.texts.size(); i += 2) {
    const float* first = vectors.data() + static_cast<Index>(i) * width;
    const double cosine = cosine_of(first, first + width, width);
    if (command.json)
      fmt::print(
          "{}\n",
          Json({{"first", command.texts[i]}, {"second", command.texts[i + 1]}, {"cosine", cosine}})
              .dump(-1, ' ', false, Json::error_handler_t::replace));
    else
      fmt::print("{:.6f}\t{}\t{}\n", cosine, command.texts[i], command.texts[i + 1]);
  }
}

void print_vectors(const EmbedCommand& command, const Tensor& vectors) {
  const Index width = vectors.shape()[1];
  for (std::size_t i = 0; i < command.texts.size(); ++i) {
    const float* first = vectors.data() + static_cast<Index>(i) * width;
    const std::vector<float> row(first, first + width);
    if (command.json)
      fmt::print("{}\n", Json({{"text", command.texts[i]}, {"vector", row}})
                             .dump(-1, ' ', false, Json::error_handler_t::replace));
    else
      fmt::print("{:.8g}\n", fmt::join(row, " "));
  }
}

/// Texts that were truncated: how many, and the first of them.
struct TruncatedTexts {
  Index count = 0, first = 0, tokens = 0;

  void add(Index text, Index has) {
    if (count++ == 0) first = text, tokens = has;
  }
  void report(const Pretrained& loaded) const {
    if (count > 0)
      message("{} of the texts {} truncated to the {} tokens that the model reads; text {} has {}",
              count, count == 1 ? "is" : "are", max_embed_tokens(loaded).value(), first + 1,
              tokens);
  }
};

void run(EmbedCommand& command) {
  const StopSignals signals;
  Pretrained loaded = open_model(command.model, command.load);
  loaded.model.pack(Context(command.threads));
  if (command.texts.empty() || is_standard_input(command.texts)) {
    announce_standard_input("texts, one per line,");
    command.texts = lines_of(std::cin);
  }
  if (command.cosine && command.texts.size() % 2 != 0)
    throw std::invalid_argument(
        fmt::format("embed: --cosine of {} texts, expected pairs", command.texts.size()));
  if (loaded.tokenizer)
    for (std::size_t i = 0; i < command.texts.size(); ++i)
      check_utf8(fmt::format("embed: text {}", i + 1), command.texts[i], *loaded.tokenizer);
  TruncatedTexts truncated;
  // In batches, so that vectors appear while others are computed.
  constexpr Index batch = 1024;
  std::vector<std::string> texts;
  texts.swap(command.texts);
  for (Index first = 0; first < std::ssize(texts); first += batch) {
    const Index end = std::min(std::ssize(texts), first + batch);
    command.texts.assign(texts.begin() + first, texts.begin() + end);
    const EmbedEvents events{
        .cancel_check = StopSignals::throw_if_caught,
        .truncated = [&](Index text, Index tokens) { truncated.add(first + text, tokens); }};
    const Tensor vectors = embed_texts(loaded, command.texts, events, Context(command.threads));
    command.cosine ? print_cosines(command, vectors) : print_vectors(command, vectors);
  }
  truncated.report(loaded);
}

}  // namespace

void add_embed(CLI::App& app) {
  CLI::App* command = app.add_subcommand("embed", "Embed texts: one vector for each");
  const auto c = std::make_shared<EmbedCommand>();
  command->add_option("model", c->model, "Folder of an encoder, or a name: minilm")->required();
  command->add_option("text", c->texts, "Texts (default, and -: lines of standard input)");
  command->add_flag("--cosine", c->cosine, "Cosine similarity of pairs of texts: -1 to 1");
  add_load_options(*command, c->load);
  add_threads_option(*command, c->threads);
  command->add_flag("--json", c->json, "A JSON object for each text, one per line");
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
