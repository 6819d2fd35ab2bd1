#include <algorithm>

#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "cli/models/open_model.h"

namespace rapt::cli {
namespace {

struct ConvertCommand {
  std::string model, out;
  Type type = Type::f32;
  double max_shard_size = 5;  // GB
  bool allow_non_finite = false;
};

/// Tensors that the copy will not have: the first names, and how many more.
void warn_unused(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    list += fmt::format("{}{}", i == 0 ? "" : ", ", Json(names[i]).dump(-1, ' ', true));
  if (names.size() > most) list += fmt::format(" and {} more", names.size() - most);
  message("not written, since rapt does not use them: {}", list);
}

void run(const ConvertCommand& command) {
  check_new_folder(command.out);
  const Pretrained opened = open_model(command.model, {WeightType::f32, command.allow_non_finite});
  SaveOptions options = save_options(opened);
  options.type = command.type;
  options.max_shard_bytes = static_cast<Index>(command.max_shard_size * 1e9);
  save_pretrained(command.out, opened.model, opened.tokenizer, options);
  warn_unused(opened.unused_tensors);
  message("{}: {} parameters in {}, for from_pretrained", command.out, opened.model.count(),
          to_string(command.type));
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("convert", "Write a model as Transformers reads it with from_pretrained");
  const auto c = std::make_shared<ConvertCommand>();
  add_model_option(*command, c->model);
  command->add_option("folder", c->out, "New folder")->required();
  add_enum_option(*command, "--dtype", c->type, {Type::f32, Type::bf16, Type::f16},
                  "Type that weights are rounded to");
  command
      ->add_option("--max-shard-size", c->max_shard_size,
                   "Largest file in GB; a larger model becomes several files")
      ->check(CLI::Range(1e-6, 1e6))
      ->check(finite_number())
      ->capture_default_str();
  add_non_finite_option(*command, c->allow_non_finite);
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
