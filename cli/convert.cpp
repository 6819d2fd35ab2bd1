#include <algorithm>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/output.h"

namespace rapt::cli {
namespace {

struct ConvertCommand {
  std::string model, out, type = "f32";
  double shard = 5;
  bool allow_non_finite = false;
};

Type type_of(const std::string& word) {
  return word == "bf16" ? Type::bf16 : word == "f16" ? Type::f16 : Type::f32;
}

/// What a model of others has and its copy will not: the first names, and how many more.
void tell_left_out(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  if (names.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    list += fmt::format("{}{}", i == 0 ? "" : ", ", Json(names[i]).dump(-1, ' ', true));
  if (names.size() > most) list += fmt::format(" and {} more", names.size() - most);
  message("not written, since rapt computes nothing with them: {}", list);
}

void run(const ConvertCommand& command) {
  check_new_folder(command.out);
  const Pretrained opened = open_model(command.model, {WeightForm::f32, command.allow_non_finite});
  WriteOptions options = write_options(opened);
  options.type = type_of(command.type);
  options.shard_bytes = static_cast<Index>(command.shard * 1e9);
  write_pretrained(command.out, opened.model, opened.tokenizer, options);
  tell_left_out(opened.left_out);
  message("{}: {} parameters in {}, for from_pretrained", command.out, opened.model.count(),
          command.type);
}

}  // namespace

void add_convert(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("convert", "Write a model as Transformers reads it with from_pretrained");
  const auto c = std::make_shared<ConvertCommand>();
  command
      ->add_option("model", c->model,
                   "Folder of a run or of a model, GGUF file, or a name: smollm2")
      ->required();
  command->add_option("folder", c->out, "New folder")->required();
  command->add_option("--dtype", c->type, "What numbers are rounded to")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option("--shard", c->shard, "Most GB of a file; more become several")
      ->check(CLI::Range(1e-6, 1e6))
      ->check(finite_number())
      ->capture_default_str();
  add_non_finite_option(*command, c->allow_non_finite);
  command->callback([c] { run(*c); });
}

}  // namespace rapt::cli
