#include "cli/models.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <stdexcept>

namespace rapt::cli {
namespace {

struct FormWord {
  const char* word;
  WeightForm form;
};
constexpr std::array forms = {FormWord{"stored", WeightForm::stored},
                              FormWord{"f32", WeightForm::f32}, FormWord{"q8_0", WeightForm::q8_0},
                              FormWord{"q4_0", WeightForm::q4_0},
                              FormWord{"q4_1", WeightForm::q4_1}};

void tell(const std::vector<std::string>& notices) {
  for (const std::string& line : notices) fmt::print(stderr, "{}\n", line);
}

OpenedModel opened(LoadedRun run) {
  tell(run.notices);
  OpenedModel made{std::move(run.model), std::move(run.tokenizer), {}};
  if (made.tokenizer && made.tokenizer->end()) {
    made.special.ends = {*made.tokenizer->end()};
    made.special.decoder_start = made.tokenizer->end();
  }
  return made;
}

OpenedModel opened(Pretrained loaded) {
  tell(loaded.notices);
  OpenedModel made{std::move(loaded.model), std::move(loaded.tokenizer), loaded.special, true};
  if (made.special.ends.empty() && made.tokenizer && made.tokenizer->end())
    made.special.ends = {*made.tokenizer->end()};
  return made;
}

}  // namespace

OpenedModel open_model(const std::string& name, const LoadOptions& options) {
  const std::string path = find_model(name);
  if (is_run_folder(path)) return opened(load_run(path));
  return opened(read_pretrained(path, options));
}

LoadOptions load_options(const std::string& weights) {
  for (const FormWord& form : forms)
    if (weights == form.word) return {form.form};
  throw std::invalid_argument("--weights " + weights);
}

std::vector<std::string> weight_words() {
  std::vector<std::string> words;
  for (const FormWord& form : forms) words.emplace_back(form.word);
  return words;
}

std::vector<std::int32_t> chat_ids(const Tokenizer& tokenizer, const std::string& question) {
  if (!tokenizer.id_of("<|im_start|>") || !tokenizer.id_of("<|im_end|>"))
    throw std::invalid_argument(
        "--chat: the tokenizer has no <|im_start|> and <|im_end|>, the only form of chats that is "
        "known here");
  EncodeOptions scaffold, words;
  scaffold.frame = words.frame = false;
  scaffold.special = true;
  std::vector<std::int32_t> ids;
  const auto add = [&](const std::string& text, const EncodeOptions& how) {
    const std::vector<std::int32_t> more = tokenizer.encode(text, how).ids;
    ids.insert(ids.end(), more.begin(), more.end());
  };
  add("<|im_start|>user\n", scaffold);
  add(question, words);
  add("<|im_end|>\n<|im_start|>assistant\n", scaffold);
  return ids;
}

}  // namespace rapt::cli
