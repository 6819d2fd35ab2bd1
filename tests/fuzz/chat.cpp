#include <algorithm>
#include <span>

#include "families/family_config.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"
#include "fuzz/tokenizer_files.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

constexpr std::int32_t first_mark = 256;  // below are bytes

/// Reads bytes and has the tokens of some forms.
Pretrained model() {
  ModelConfig config;
  config.vocab_size = 300;
  config.hidden_size = 4;
  config.layers = config.heads = 2;
  const test::TemporaryFolder folder;
  Tokenizer::bytes().save(folder / "tokenizer.json");
  Json file = Json::parse(test::get(folder / "tokenizer.json"));
  int id = static_cast<int>(Tokenizer::bytes().vocab_size());
  for (const char* token : {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>",
                            "<end_of_turn>", "<|start_header_id|>", "<|eot_id|>"})
    file["added_tokens"].push_back(added_token(id++, token, true));
  Pretrained made{"llama", Transformer(config), test::tokenizer_of(file)};
  made.special_tokens.bos = made.tokenizer->token_to_id("<s>");
  return made;
}

/// A template or a tokenizer_config.json, a zero byte, a question and, if another zero byte
/// follows, what the model is told first.
std::vector<std::string> seeds() {
  const std::string zero(1, '\0');
  return {
      "{% if tools %}{{ '<|im_start|>system\n' }}{{ x }}<|im_end|>{{ '<|im_start|>system\n"
      "You are Q.<|im_end|>\n' }}" +
          zero + "Why?",
      "{{ '<|im_start|>system\\nHelp.<|im_end|>' }}" + zero + "Why?" + zero + "Be brief.",
      "{{ bos_token }}{{ '<|start_header_id|>' }}Cutting Knowledge Date: December 2023" + zero +
          "Why <|eot_id|>?",
      "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + ' [/INST]' }}" + zero + "Why?" + zero + "Ja",
      "{{ bos_token }}{{ '[INST] ' + '[/INST]' }}" + zero + "Why?",
      "{{ '<start_of_turn>' + role }}" + zero + "Why?",
      "{{'<|user|>\n' + '<|end|>\n'}}" + zero + "Why?" + zero,
      R"({"chat_template":"{{ '<|user|>\n' + eos_token }}","bos_token":"<s>"})" + zero + "Why?",
      R"({"chat_template":[{"name":"default","template":"<start_of_turn>"}]})" + zero + "Why?"};
}

std::vector<std::string> words() {
  return {"<|im_start|>",
          "<|im_end|>",
          "<|im_start|>system\\n",
          "<|im_start|>system\n",
          "[INST]",
          " [/INST]",
          "<|start_header_id|>",
          "<|eot_id|>",
          "<<SYS>>",
          "<|user|>",
          "<start_of_turn>",
          "<end_of_turn>",
          "bos_token",
          "<|end|>",
          "<s>",
          "</s>",
          "{{",
          "<|im_end|",
          "\"chat_template\":",
          "Cutting Knowledge Date: "};
}

std::vector<std::int32_t> marks_in(std::vector<std::int32_t> ids) {
  std::erase_if(ids, [](std::int32_t id) { return id < first_mark; });
  return ids;
}

/// Messages are in the text as they are, and no part of them becomes a special token.
void use(Pretrained& loaded, const std::string& text, const std::string& question,
         const std::optional<std::string>& system) {
  expect(text.find(question) != std::string::npos, "a question that is lost");
  expect(!system || text.find(*system) != std::string::npos, "a system text that is lost");
  const std::vector<std::int32_t> ids =
      refused_or([&] { return chat_ids(loaded, question, system); });
  const bool begins = loaded.chat_template.value_or("").find("bos_token") != std::string::npos;
  expect(
      loaded.tokenizer->decode(ids, {.skip_special_tokens = false}) == (begins ? "<s>" : "") + text,
      "ids of another text");
  const std::optional<std::string> plain = system && !system->empty() ? "y" : system;
  expect(marks_in(ids) == marks_in(chat_ids(loaded, "x", plain)), "words that are marks");
  refused_or([&] { return chat_stop_token(loaded); });
}

std::function<void()> open(std::string_view input) {
  static Pretrained loaded = model();
  const auto take = [&] {
    const std::string_view part = input.substr(0, input.find('\0'));
    input.remove_prefix(std::min(part.size() + 1, input.size()));
    return std::string(part);
  };
  loaded.chat_template = take();
  std::vector<std::string> warnings;
  if (loaded.chat_template->starts_with("{\""))
    loaded.chat_template =
        chat_template_from(parse_json(*loaded.chat_template, "fuzz"), "fuzz", warnings);
  const std::string question = take();
  const std::optional<std::string> system =
      input.empty() ? std::nullopt : std::optional<std::string>(take());
  const std::string text =
      refused_or([&] { return chat_text(loaded.chat_template.value_or(""), question, system); });
  return [=] { use(loaded, text, question, system); };
}

}  // namespace

const Target chat_target = {"chat", seeds, words, open};

}  // namespace rapt::fuzz
