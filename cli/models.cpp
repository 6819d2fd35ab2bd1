#include "cli/models.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "cli/output.h"

namespace rapt::cli {
namespace {

struct FormWord {
  const char* word;
  WeightForm form;
};
constexpr std::array forms = {
    FormWord{"stored", WeightForm::stored}, FormWord{"f32", WeightForm::f32},
    FormWord{"bf16", WeightForm::bf16},     FormWord{"f16", WeightForm::f16},
    FormWord{"q8_0", WeightForm::q8_0},     FormWord{"q4_0", WeightForm::q4_0},
    FormWord{"q4_1", WeightForm::q4_1}};

void tell(const std::vector<std::string>& notices) {
  for (const std::string& line : notices) message(line);
}

}  // namespace

Pretrained open_model(const std::string& name, const LoadOptions& options) {
  const std::string path = find_model(name);
  const bool run = is_run_folder(path);
  if (run && options.weights != WeightForm::stored && options.weights != WeightForm::f32)
    throw std::invalid_argument("--weights with the folder of a run, expected stored or f32");
  Pretrained opened = run ? as_pretrained(load_run(path)) : read_pretrained(path, options);
  tell(opened.notices);
  if (opened.special.ends.empty() && opened.tokenizer && opened.tokenizer->end())
    opened.special.ends = {*opened.tokenizer->end()};
  return opened;
}

void add_load_options(CLI::App& command, LoadWords& words) {
  std::vector<std::string> known;
  for (const FormWord& form : forms) known.emplace_back(form.word);
  command
      .add_option("--weights", words.weights,
                  "Matrices of a model of others (stored: few bits, bf16 and f16 stay)")
      ->check(CLI::IsMember(known))
      ->capture_default_str();
  add_non_finite_option(command, words.allow_non_finite);
}

void add_non_finite_option(CLI::App& command, bool& allow) {
  command.add_flag("--allow-non-finite", allow,
                   "Read a model of others even if weights are infinite or NaN");
}

LoadOptions load_options(const LoadWords& words) {
  for (const FormWord& form : forms)
    if (words.weights == form.word) return {form.form, words.allow_non_finite};
  throw std::invalid_argument("--weights " + words.weights);
}

}  // namespace rapt::cli
