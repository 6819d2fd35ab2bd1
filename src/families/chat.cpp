#include <array>

#include "base/check.h"
#include "rapt/pretrained.h"

namespace rapt {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// A form that chats are written in: the marks that give it away in a template, and what is put
/// around the words. Templates are programs, which are not run: they may do anything.
struct ChatForm {
  const char* name;
  const char* mark;  // every template of the form has it, and none that comes later
  const char *system, *after_system;
  const char *user, *after_user;  // what the model says follows
  const char* end;                // the token that ends what the model says
};

constexpr std::array forms = {
    ChatForm{"ChatML", "<|im_start|>", "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n",
             "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"},
    ChatForm{"Llama 3", "<|start_header_id|>", "<|start_header_id|>system<|end_header_id|>\n\n",
             "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
             "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
    ChatForm{"Gemma", "<start_of_turn>", nullptr, nullptr, "<start_of_turn>user\n",
             "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"},
    ChatForm{"Llama 2", "<<SYS>>", "[INST] <<SYS>>\n", "\n<</SYS>>\n\n", "[INST] ", " [/INST]",
             "</s>"},
    ChatForm{"Mistral", "[INST]", nullptr, nullptr, "[INST] ", " [/INST]", "</s>"},
    ChatForm{"Phi", "<|end|>", "<|system|>\n", "<|end|>\n", "<|user|>\n",
             "<|end|>\n<|assistant|>\n", "<|end|>"},
    ChatForm{"Zephyr", "<|user|>", "<|system|>\n", "</s>\n", "<|user|>\n", "</s>\n<|assistant|>\n",
             "</s>"}};

const ChatForm* form_in(const std::string& chat_template) {
  for (const ChatForm& form : forms)
    if (has(chat_template, form.mark)) return &form;
  return nullptr;
}

/// The form of a model: its template's, or without one ChatML, if it has the tokens.
const ChatForm& form_of(const Pretrained& loaded) {
  check(loaded.tokenizer.has_value(), "chat: the model has no tokenizer, expected one");
  const bool chatml =
      loaded.tokenizer->id_of("<|im_start|>") && loaded.tokenizer->id_of("<|im_end|>");
  const ChatForm* form =
      loaded.chat_template.empty() && chatml ? &forms[0] : form_in(loaded.chat_template);
  std::string names;
  for (const ChatForm& known : forms) names += std::string(names.empty() ? "" : ", ") + known.name;
  check(form != nullptr, "chat: the model has ",
        loaded.chat_template.empty() ? "no chat template" : "a chat template of another form",
        ", expected one of ", names, "; a prompt that is no chat is read as it stands");
  check(form != &forms[0] || chatml,
        "chat: the template is ChatML, but the tokenizer has no <|im_start|> and <|im_end|>");
  return *form;
}

/// What a ChatML template puts between <|im_start|>system and <|im_end|> if nobody says otherwise.
std::string default_system(const std::string& chat_template) {
  for (const std::string mark : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
    // Others have code between the marks, such as that for tools.
    for (std::size_t at = 0; (at = chat_template.find(mark, at)) != std::string::npos;) {
      at += mark.size();
      const std::size_t end = chat_template.find("<|im_end|>", at);
      if (end == std::string::npos) break;
      const std::size_t code = chat_template.find_last_of("{}'", end);
      if (code == std::string::npos || code < at) return chat_template.substr(at, end - at);
      at = code + 1;  // a mark before it has the same code behind it
    }
  }
  return "";
}

/// A chat in parts: those of the form, at even places, and the words of people between them.
std::vector<std::string> chat_parts(const ChatForm& form, const std::string& chat_template,
                                    const std::string& question,
                                    const std::optional<std::string>& system) {
  check(!system || form.system != nullptr, "chat: the form of ", form.name,
        " has no place for a system text, expected none");
  std::string user = form.user, after = form.after_user;
  // Later templates of Mistral have no space before the end.
  if (std::string_view(form.name) == "Mistral" && !has(chat_template, " [/INST]"))
    after = "[/INST]";
  const std::string first = system                   ? *system
                            : form.system == nullptr ? ""
                                                     : default_system(chat_template);
  const bool dated =
      form.system != nullptr && has(chat_template, "Cutting Knowledge Date: December 2023");
  if (first.empty() && !dated) return {user, question, after};
  const std::string before = form.system + std::string(dated ? "Cutting Knowledge Date: December "
                                                               "2023\nToday Date: 26 Jul 2024\n\n"
                                                             : "");
  // Llama 2 has the system text within what the user says.
  if (std::string_view(form.name) == "Llama 2") user = "";
  return {before, first, form.after_system + user, question, after};
}

}  // namespace

std::string chat_text(const std::string& chat_template, const std::string& question,
                      const std::optional<std::string>& system) {
  const ChatForm* form = form_in(chat_template);
  check(form != nullptr, "chat: the template has a form that is not known here");
  std::string text;
  for (const std::string& part : chat_parts(*form, chat_template, question, system)) text += part;
  return text;
}

std::int32_t chat_end(const Pretrained& loaded) {
  const ChatForm& form = form_of(loaded);
  if (const auto id = loaded.tokenizer->id_of(form.end)) return *id;
  check(!loaded.special.ends.empty(), "chat: the model has no ", form.end,
        " to end with, expected it in its vocabulary");
  return loaded.special.ends.front();
}

std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                   const std::optional<std::string>& system) {
  const ChatForm& form = form_of(loaded);
  const Tokenizer& tokenizer = *loaded.tokenizer;
  EncodeOptions scaffold, words;
  scaffold.frame = words.frame = false;
  scaffold.special = true;
  const std::vector<std::string> parts = chat_parts(form, loaded.chat_template, question, system);
  std::vector<std::int32_t> ids;
  if (has(loaded.chat_template, "bos_token") && loaded.special.begin)
    ids.push_back(*loaded.special.begin);
  const auto add = [&](const std::string& text, const EncodeOptions& how) {
    const std::vector<std::int32_t> more = tokenizer.encode(text, how).ids;
    ids.insert(ids.end(), more.begin(), more.end());
  };
  // Where marks are tokens, words between them are cut apart from them.
  if (&form == &forms[0]) {
    for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i], i % 2 == 0 ? scaffold : words);
    return ids;
  }
  // Otherwise the whole is one text, so the words may not spell tokens that stand for no text.
  std::string whole;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    whole += parts[i];
    check(i % 2 == 0 ||
              tokenizer.encode(parts[i], scaffold).ids == tokenizer.encode(parts[i], words).ids,
          "chat: \"", parts[i].substr(0, 100),
          "\" spells a special token of the model, expected plain words");
  }
  add(whole, scaffold);
  return ids;
}

}  // namespace rapt
