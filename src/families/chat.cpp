#include <array>

#include "base/check.h"
#include "rapt/models/pretrained.h"

namespace rapt {
using namespace detail;
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// A chat format: the marker that identifies it in a template, and the text around messages.
/// Templates are programs that may do anything, so they are not run.
struct ChatFormat {
  const char* name;
  const char* marker;  // in every template of this format, and in none of a later one
  const char *system, *after_system;
  const char *user, *after_user;  // the answer follows
  const char* stop;               // the token that ends the answer
};

constexpr std::array formats = {
    ChatFormat{"ChatML", "<|im_start|>", "<|im_start|>system\n", "<|im_end|>\n",
               "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>"},
    ChatFormat{"Llama 3", "<|start_header_id|>", "<|start_header_id|>system<|end_header_id|>\n\n",
               "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n",
               "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
    ChatFormat{"Gemma", "<start_of_turn>", nullptr, nullptr, "<start_of_turn>user\n",
               "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"},
    ChatFormat{"Llama 2", "<<SYS>>", "[INST] <<SYS>>\n", "\n<</SYS>>\n\n", "[INST] ", " [/INST]",
               "</s>"},
    ChatFormat{"Mistral", "[INST]", nullptr, nullptr, "[INST] ", " [/INST]", "</s>"},
    ChatFormat{"Phi", "<|end|>", "<|system|>\n", "<|end|>\n", "<|user|>\n",
               "<|end|>\n<|assistant|>\n", "<|end|>"},
    ChatFormat{"Zephyr", "<|user|>", "<|system|>\n", "</s>\n", "<|user|>\n",
               "</s>\n<|assistant|>\n", "</s>"}};

const ChatFormat* format_in(const std::string& chat_template) {
  for (const ChatFormat& format : formats)
    if (has(chat_template, format.marker)) return &format;
  return nullptr;
}

/// The format of a model's template; without a template ChatML, if the tokenizer has its tokens.
const ChatFormat& format_of(const Pretrained& loaded) {
  check(loaded.tokenizer.has_value(), "chat: the model has no tokenizer, expected one");
  const bool chatml =
      loaded.tokenizer->token_to_id("<|im_start|>") && loaded.tokenizer->token_to_id("<|im_end|>");
  const bool has_template = loaded.chat_template.has_value();
  const ChatFormat* format =
      !has_template && chatml ? &formats[0] : format_in(loaded.chat_template.value_or(""));
  std::string names;
  for (const ChatFormat& known : formats)
    names += std::string(names.empty() ? "" : ", ") + known.name;
  check(format != nullptr, "chat: the model has ",
        has_template ? "a chat template of an unknown format" : "no chat template",
        ", expected one of ", names, "; plain prompts work without a template");
  check(format != &formats[0] || chatml,
        "chat: the template is ChatML, but the tokenizer has no <|im_start|> and <|im_end|>");
  return *format;
}

/// The default system message of a ChatML template: between <|im_start|>system and <|im_end|>.
std::string default_system(const std::string& chat_template) {
  for (const std::string marker : {"<|im_start|>system\\n", "<|im_start|>system\n"}) {
    // Some have code between the markers, for example for tools.
    for (std::size_t at = 0; (at = chat_template.find(marker, at)) != std::string::npos;) {
      at += marker.size();
      const std::size_t end = chat_template.find("<|im_end|>", at);
      if (end == std::string::npos) break;
      const std::size_t code = chat_template.find_last_of("{}'", end);
      if (code == std::string::npos || code < at) return chat_template.substr(at, end - at);
      at = code + 1;  // a marker before it has the same code after it
    }
  }
  return "";
}

/// A chat in parts: those of the format at even indices, messages between them.
std::vector<std::string> chat_parts(const ChatFormat& format, const std::string& chat_template,
                                    const std::string& question,
                                    const std::optional<std::string>& system) {
  check(!system || format.system != nullptr, "chat: the format of ", format.name,
        " has no system message, expected none");
  std::string user = format.user, after = format.after_user;
  // Mistral's later templates have no space before the end.
  if (std::string_view(format.name) == "Mistral" && !has(chat_template, " [/INST]"))
    after = "[/INST]";
  const std::string first = system                     ? *system
                            : format.system == nullptr ? ""
                                                       : default_system(chat_template);
  const bool dated =
      format.system != nullptr && has(chat_template, "Cutting Knowledge Date: December 2023");
  if (first.empty() && !dated) return {user, question, after};
  const std::string before = format.system + std::string(dated ? "Cutting Knowledge Date: December "
                                                                 "2023\nToday Date: 26 Jul 2024\n\n"
                                                               : "");
  // Llama 2 has the system message inside the user's.
  if (std::string_view(format.name) == "Llama 2") user = "";
  return {before, first, format.after_system + user, question, after};
}

}  // namespace

std::string chat_text(const std::string& chat_template, const std::string& question,
                      const std::optional<std::string>& system) {
  const ChatFormat* format = format_in(chat_template);
  check(format != nullptr, "chat: the template has an unknown format");
  std::string text;
  for (const std::string& part : chat_parts(*format, chat_template, question, system)) text += part;
  return text;
}

std::int32_t chat_stop_token(const Pretrained& loaded) {
  const ChatFormat& format = format_of(loaded);
  if (const auto id = loaded.tokenizer->token_to_id(format.stop)) return *id;
  check(!loaded.special_tokens.eos.empty(), "chat: the model has no ", format.stop,
        " to end with, expected it in its vocabulary");
  return loaded.special_tokens.eos.front();
}

std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                   const std::optional<std::string>& system) {
  const ChatFormat& format = format_of(loaded);
  const Tokenizer& tokenizer = *loaded.tokenizer;
  const EncodeOptions scaffold{.add_special_tokens = false, .parse_special = true};
  const EncodeOptions words{.add_special_tokens = false, .parse_special = false};
  const std::string chat_template = loaded.chat_template.value_or("");
  const std::vector<std::string> parts = chat_parts(format, chat_template, question, system);
  std::vector<std::int32_t> ids;
  if (has(chat_template, "bos_token") && loaded.special_tokens.bos)
    ids.push_back(*loaded.special_tokens.bos);
  const auto add = [&](const std::string& text, const EncodeOptions& how) {
    const std::vector<std::int32_t> more = tokenizer.encode(text, how).ids;
    ids.insert(ids.end(), more.begin(), more.end());
  };
  // Where markers are tokens, messages are encoded apart from them.
  if (&format == &formats[0]) {
    for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i], i % 2 == 0 ? scaffold : words);
    return ids;
  }
  // Otherwise the whole is one text, so messages must not spell special tokens.
  std::string whole;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    whole += parts[i];
    check(i % 2 == 0 ||
              tokenizer.encode(parts[i], scaffold).ids == tokenizer.encode(parts[i], words).ids,
          "chat: \"", parts[i].substr(0, 100),
          "\" spells a special token of the model, expected plain text");
  }
  add(whole, scaffold);
  return ids;
}

}  // namespace rapt
