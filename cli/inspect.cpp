#include "rapt/models/inspect.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/console/output.h"
#include "cli/models/find_model.h"
#include "rapt/models/pretrained.h"
#include "rapt/models/train.h"

namespace rapt::cli {
namespace {

struct InspectCommand {
  std::string path;
  std::vector<std::string> sets;
  InspectOptions options;
  bool json = false;
};

/// 1234567 as 1,234,567.
std::string grouped(Index number) {
  std::string text = std::to_string(number);
  for (Index place = std::ssize(text) - 3; place > 0; place -= 3)
    text.insert(text.begin() + place, ',');
  return text;
}

std::string flops_text(double flops) {
  if (flops == 0) return "";
  constexpr std::array units = {"", " k", " M", " G", " T", " P"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < units.size(); ++unit) flops /= 1000;
  return fmt::format("{:.4g}{}", flops, units[unit]);
}

/// Tree branches before a line.
std::string branches(const std::vector<InspectLine>& lines, std::size_t at) {
  std::string text;
  for (Index depth = 1; depth <= lines[at].depth; ++depth) {
    bool more = false;
    for (std::size_t i = at + 1; i < lines.size() && lines[i].depth >= depth; ++i)
      more = more || lines[i].depth == depth;
    const bool own = depth == lines[at].depth;
    text += own ? (more ? "├ " : "└ ") : (more ? "│ " : "  ");
  }
  return text;
}

/// Columns of a text; continuation bytes of UTF-8 have none.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

using Cells = std::vector<std::string>;

void print_columns(const std::vector<Cells>& rows, const std::vector<bool>& right) {
  std::vector<std::size_t> widths(right.size());
  for (const Cells& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], columns_of(row[c]));
  for (const Cells& row : rows) {
    std::string text;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - columns_of(row[c]), ' ');
      text += right[c] ? padding + row[c] : row[c] + padding;
      if (c + 1 < row.size()) text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

void print_tree(const Inspection& model) {
  std::vector<Cells> rows = {
      {"part", "weights", "output", "parameters", "flops", "kept for backward", ""}};
  for (std::size_t i = 0; i < model.lines.size(); ++i) {
    const InspectLine& line = model.lines[i];
    rows.push_back({branches(model.lines, i) + line.name, line.weights,
                    line.output.rank() == 0 ? "" : to_string(line.output),
                    line.parameters == 0 ? "" : grouped(line.parameters), flops_text(line.flops),
                    line.kept_bytes == 0 ? "" : bytes_text(line.kept_bytes), line.note});
  }
  print_columns(rows, {false, false, false, true, true, true, false});
}

void print_memory(const Inspection& model, const ModelConfig& config) {
  const auto bytes = [](const ActivationBytes& a) {
    return a.again == 0 ? bytes_text(a.kept)
                        : fmt::format("{} ({} kept, {} made again at a time)", bytes_text(a.all()),
                                      bytes_text(a.kept), bytes_text(a.again));
  };
  const bool plain = !config.recompute && !config.reversible;
  fmt::print("\nparameters   {}\n", grouped(model.parameters));
  fmt::print("flops        {} forward, {} in a training step\n", flops_text(model.flops),
             flops_text(3 * model.flops));
  fmt::print("weights      {}, gradients {}, AdamW {}\n", bytes_text(model.weight_bytes),
             bytes_text(model.gradient_bytes), bytes_text(model.optimizer_bytes));
  fmt::print("activations  {}\n", bytes(model.configured));
  if (!plain) fmt::print("             {} if layers kept all they made\n", bytes(model.plain));
  if (!config.recompute && !config.reversible)
    fmt::print("             {} with recompute = true\n", bytes(model.recomputed));
  const Index all =
      model.weight_bytes + model.gradient_bytes + model.optimizer_bytes + model.configured.all();
  fmt::print("training     {} in all\n", bytes_text(all));
  if (model.cache_bytes > 0)
    fmt::print("generating   {} of keys and values a token (f32)\n", bytes_text(model.cache_bytes));
}

std::string tokenizer_text(const RunStatus& run) {
  if (!run.tokenizer) return "none: the task has numbers of its own";
  const bool bytes =
      run.config.tokenizer.kind == TokenizerOptions::Kind::bytes && !run.config.tokenizer.path;
  return fmt::format("{}, {} tokens", bytes ? "bytes" : "bpe",
                     grouped(run.tokenizer->vocab_size()));
}

void print_run(const RunStatus& run) {
  fmt::print("step         {} of {}{}\n", run.last ? run.last->step : run.saved.value_or(0),
             run.config.train.steps,
             run.saved ? fmt::format(", saved at {}", *run.saved) : ", nothing saved yet");
  if (run.last) fmt::print("loss         {:.4f}\n", run.last->loss);
  if (run.evaluation)
    fmt::print("evaluation   loss {:.4f}, accuracy {:.2f} %, exact {:.2f} % at step {}\n",
               run.evaluation->loss, 100 * run.evaluation->accuracy, 100 * run.evaluation->exact,
               run.evaluation->step);
  fmt::print("tokenizer    {}\n\n", tokenizer_text(run));
}

Json shape_json(const Shape& shape) {
  Json sizes = Json::array();
  for (Index axis = 0; axis < shape.rank(); ++axis) sizes.push_back(shape[axis]);
  return sizes;
}

Json json_of(const Inspection& model, const InspectOptions& options) {
  Json lines = Json::array();
  for (const InspectLine& line : model.lines)
    lines.push_back({{"depth", line.depth},
                     {"name", line.name},
                     {"repeats", line.repeats},
                     {"weights", line.weights},
                     {"output", shape_json(line.output)},
                     {"parameters", line.parameters},
                     {"flops", line.flops},
                     {"kept_bytes", line.kept_bytes},
                     {"note", line.note}});
  const auto activations = [](const ActivationBytes& a) {
    return Json{{"kept", a.kept}, {"again", a.again}};
  };
  return {{"batch", options.batch},
          {"tokens", options.tokens},
          {"parameters", model.parameters},
          {"flops", model.flops},
          {"weight_bytes", model.weight_bytes},
          {"gradient_bytes", model.gradient_bytes},
          {"optimizer_bytes", model.optimizer_bytes},
          {"activation_bytes", activations(model.configured)},
          {"plain_activation_bytes", activations(model.plain)},
          {"recomputed_activation_bytes", activations(model.recomputed)},
          {"cache_bytes_per_token", model.cache_bytes},
          {"lines", lines}};
}

Json json_of(const RunStatus& run) {
  Json object{{"tokenizer", tokenizer_text(run)}};
  if (run.saved) object["saved_step"] = *run.saved;
  if (run.last) object["step"] = run.last->step;
  if (run.last) object["loss"] = run.last->loss;
  if (run.evaluation) object["exact"] = run.evaluation->exact;
  return object;
}

void print_info(const PretrainedInfo& info, const std::string& path) {
  std::vector<std::string> parts;
  Index bytes = 0;
  for (const auto& [type, stored] : info.stored) {
    parts.push_back(
        fmt::format("{} {} in {}", bytes_text(stored.bytes), type,
                    stored.tensors == 1 ? "1 tensor" : fmt::format("{} tensors", stored.tensors)));
    bytes += stored.bytes;
  }
  fmt::print("family       {}\n", info.family);
  fmt::print("stored       {}: {}\n", bytes_text(bytes), fmt::join(parts, ", "));
  fmt::print("context      {} tokens\n", grouped(info.config.max_positions));
  fmt::print("from         {}\n\n", path);
}

Json json_of(const PretrainedInfo& info) {
  Json types = Json::object();
  for (const auto& [type, stored] : info.stored)
    types[type] = {{"tensors", stored.tensors}, {"bytes", stored.bytes}};
  return {{"family", info.family}, {"context", info.config.max_positions}, {"types", types}};
}

void run(const InspectCommand& command) {
  const bool toml = command.path.ends_with(".toml");
  if (toml && !std::filesystem::exists(command.path))
    throw std::invalid_argument("inspect: there is no file " + command.path);
  const std::string path = toml ? command.path : find_model(command.path);
  const bool folder = !toml && is_run_folder(path);
  if (!toml && !command.sets.empty())
    throw std::invalid_argument("inspect: --set with a model, expected a config file (.toml)");
  std::optional<RunStatus> status;
  std::optional<PretrainedInfo> info;
  RunConfig config;
  if (folder) {
    status = run_status(path);
    for (const std::string& line : status->warnings) message(line);
    config = status->config;
  } else if (toml) {
    config = read_run_config(path, command.sets);
  } else {
    info = pretrained_info(path);
    config.model = info->config;
  }
  const Inspection model = inspect(config.model, command.options);
  if (command.json) {
    Json object = json_of(model, command.options);
    if (status) object["run"] = json_of(*status);
    if (info) object["stored"] = json_of(*info);
    return print(object);
  }
  if (status) print_run(*status);
  if (info) print_info(*info, path);
  print_tree(model);
  print_memory(model, config.model);
  if (!config.model.vocab_size)
    fmt::print(
        "\nThere is no vocab_size, so embedding and head are left out; train takes it from the "
        "data.\n--set model.vocab_size=258 counts them for bytes.\n");
}

}  // namespace

void add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Show the shapes, parameters, arithmetic and memory of a model");
  const auto options = std::make_shared<InspectCommand>();
  command
      ->add_option("model", options->path,
                   "TOML file, folder of a run or of a model, GGUF file, or a name")
      ->required();
  command->add_option("--batch", options->options.batch, "Sequences at a time")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--tokens", options->options.tokens, "Tokens of each")
      ->check(whole_number(1))
      ->capture_default_str();
  command
      ->add_option("--sources", options->options.sources,
                   "Tokens of an encoder-decoder's sources (default: as many as tokens)")
      ->check(whole_number(1));
  command->add_option("--set", options->sets, "section.key=value, over the file; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "Identical layers share a line, which shows the values of one. Flops are those of\n"
      "products in a forward pass; scores exist a tile at a time and are never stored.\n"
      "What heads do on a text: rapt heads MODEL --text FILE");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
