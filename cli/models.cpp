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

}  // namespace

Pretrained open_model(const std::string& name, const LoadOptions& options) {
  const std::string path = find_model(name);
  const bool run = is_run_folder(path);
  if (run && options.weights > WeightForm::f32)
    throw std::invalid_argument("--weights with the folder of a run, expected stored or f32");
  Pretrained opened = run ? as_pretrained(load_run(path)) : read_pretrained(path, options);
  tell(opened.notices);
  if (opened.special.ends.empty() && opened.tokenizer && opened.tokenizer->end())
    opened.special.ends = {*opened.tokenizer->end()};
  return opened;
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

namespace {

/// What a template puts between <|im_start|>system and <|im_end|> if nobody says otherwise.
std::string default_system(const std::string& chat_template) {
  const std::string begin = "<|im_start|>system\\n", other = "<|im_start|>system\n";
  for (const std::string& mark : {begin, other}) {
    const std::size_t at = chat_template.find(mark);
    if (at == std::string::npos) continue;
    const std::size_t start = at + mark.size(), end = chat_template.find("<|im_end|>", start);
    if (end == std::string::npos) return "";
    const std::string text = chat_template.substr(start, end - start);
    return text.find_first_of("{}'") == std::string::npos ? text : "";
  }
  return "";
}

}  // namespace

std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                   const std::optional<std::string>& system) {
  if (!loaded.tokenizer || !loaded.tokenizer->id_of("<|im_start|>") ||
      !loaded.tokenizer->id_of("<|im_end|>"))
    throw std::invalid_argument(
        "--chat: the model has no <|im_start|> and <|im_end|>, the only form of chats that is "
        "known "
        "here");
  EncodeOptions scaffold, words;
  scaffold.frame = words.frame = false;
  scaffold.special = true;
  std::vector<std::int32_t> ids;
  const auto add = [&](const std::string& text, const EncodeOptions& how) {
    const std::vector<std::int32_t> more = loaded.tokenizer->encode(text, how).ids;
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const auto say = [&](const char* role, const std::string& text) {
    add(std::string("<|im_start|>") + role + "\n", scaffold);
    add(text, words);
    add("<|im_end|>\n", scaffold);
  };
  const std::string first = system ? *system : default_system(loaded.chat_template);
  if (!first.empty()) say("system", first);
  say("user", question);
  add("<|im_start|>assistant\n", scaffold);
  return ids;
}

}  // namespace rapt::cli
