#include "cli/models/open_model.h"

#include <stdexcept>

#include "cli/console/output.h"
#include "cli/models/find_model.h"
#include "rapt/models/train.h"

namespace rapt::cli {

Pretrained open_model(const std::string& name, const LoadOptions& options) {
  const std::string path = find_model(name);
  const bool run = is_run_folder(path);
  if (run && options.weight_type != WeightType::stored && options.weight_type != WeightType::f32)
    throw std::invalid_argument("--weight-type with the folder of a run, expected stored or f32");
  Pretrained opened = run ? as_pretrained(load_run(path)) : load_pretrained(path, options);
  for (const std::string& line : opened.warnings) message(line);
  if (opened.special_tokens.eos.empty() && opened.tokenizer && opened.tokenizer->eos())
    opened.special_tokens.eos = {*opened.tokenizer->eos()};
  return opened;
}

void add_load_options(CLI::App& command, LoadOptions& options) {
  using enum WeightType;
  add_enum_option(command, "--weight-type", options.weight_type,
                  {stored, f32, bf16, f16, q8_0, q4_0, q4_1},
                  "Type of the matrices (stored: quantized, bf16 and f16 stay as they are)");
  add_non_finite_option(command, options.allow_non_finite);
}

void add_non_finite_option(CLI::App& command, bool& allow) {
  command.add_flag("--allow-non-finite", allow,
                   "Load a pretrained model even if weights are infinite or NaN");
}

}  // namespace rapt::cli
