#include <gtest/gtest.h>

#include <filesystem>

#include "families/family_config.h"
#include "support/refused.h"
#include "support/temporary_folder.h"
#include "support/tokenizers.h"

namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

// Templates as models carry them, shortened to what gives their form away. What is expected is what
// Transformers makes of the whole ones.
constexpr const char* chatml =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% "
    "endif "
    "%}{{'<|im_start|>' + message['role']}}";
constexpr const char* qwen =
    "{% if tools %}{{ '<|im_start|>system\n' }}{{ messages[0]['content'] }}{{ '<|im_end|>' }}{% "
    "else "
    "%}{{ '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}{{ "
    "'<|im_start|>system\nYou are Qwen.<|im_end|>\n' }}{% endif %}";
constexpr const char* llama3 = "{{ bos_token }}{{ '<|start_header_id|>' + message['role'] }}";
constexpr const char* llama31 =
    "{{ '<|start_header_id|>system' }}{{- \"Cutting Knowledge Date: December 2023\\n\" }}";
constexpr const char* llama2 = "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + content + ' [/INST]' }}";
constexpr const char* mistral = "{{ bos_token }}{{ '[INST] ' + content + ' [/INST]' }}";
constexpr const char* mistral3 = "{{ bos_token }}{{ '[INST] ' + content + '[/INST]' }}";
constexpr const char* gemma = "{{ bos_token }}{{ '<start_of_turn>' + role + '\n' }}";
constexpr const char* phi = "{{'<|user|>\n' + message['content'] + '<|end|>\n'}}";
constexpr const char* zephyr = "{{ '<|user|>\n' + message['content'] + eos_token }}";

TEST(Chat, TextsHaveTheFormOfTheTemplate) {
  EXPECT_EQ(chat_text(chatml, "Why?"),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(chat_text(qwen, "Why?"),
            "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(chat_text(llama3, "Why?", "Be brief."),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(chat_text(llama31, "Why?"),
            "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
            "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?"
            "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(chat_text(llama2, "Why?", "Be brief."),
            "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nWhy? [/INST]");
  EXPECT_EQ(chat_text(llama2, "Why?"), "[INST] Why? [/INST]");
  EXPECT_EQ(chat_text(mistral, "Why?"), "[INST] Why? [/INST]");
  EXPECT_EQ(chat_text(mistral3, "Why?"), "[INST] Why?[/INST]");
  EXPECT_EQ(chat_text(gemma, "Why?"),
            "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(chat_text("<start_of_turn> Cutting Knowledge Date: December 2023", "Why?"),
            chat_text(gemma, "Why?"));
  EXPECT_EQ(chat_text(phi, "Why?", "Be brief."),
            "<|system|>\nBe brief.<|end|>\n<|user|>\nWhy?<|end|>\n<|assistant|>\n");
  EXPECT_EQ(chat_text(zephyr, "Why?"), "<|user|>\nWhy?</s>\n<|assistant|>\n");
}

/// A template of a megabyte is read once, not once for each of its marks.
TEST(Chat, LongTemplatesTakeNoLongerThanTheyAre) {
  std::string many;
  while (many.size() < (1 << 20)) many += "<|im_start|>system\n";
  EXPECT_EQ(chat_text(many + "}<|im_end|>", "Why?"), chat_text("<|im_start|>", "Why?"));
  EXPECT_EQ(chat_text(many + "}<|im_start|>system\nHelp.<|im_end|>", "Why?"),
            chat_text("<|im_start|>system\nHelp.<|im_end|>", "Why?"));
}

TEST(Chat, OtherFormatsAndSystemMessagesWithoutAPlaceAreRefused) {
  expect_refused([] { chat_text("{{ 'USER: ' + content }}", "Why?"); }, {"unknown format"});
  expect_refused([] { chat_text(gemma, "Why?", "Be brief."); }, {"Gemma", "system"});
  expect_refused([] { chat_text(mistral, "Why?", "Be brief."); }, {"Mistral", "system"});
}

/// A model that reads bytes and has the tokens of Gemma.
Pretrained chatting(const char* chat_template) {
  ModelConfig config;
  config.vocab_size = 300;
  config.hidden_size = config.layers = config.heads = 2;
  config.hidden_size = 4;
  const TemporaryFolder folder;
  Tokenizer::bytes().save(folder / "tokenizer.json");
  Json file = Json::parse(get(folder / "tokenizer.json"));
  int id = static_cast<int>(Tokenizer::bytes().vocab_size());
  for (const char* token : {"<bos>", "<start_of_turn>", "<end_of_turn>"})
    file["added_tokens"].push_back(added_token(id++, token, true));
  Pretrained made{"llama", Transformer(config), tokenizer_of(file)};
  made.special_tokens.bos = made.tokenizer->token_to_id("<bos>");
  made.chat_template = chat_template;
  return made;
}

TEST(Chat, MarksAreTokensAndWordsNeverAre) {
  const Pretrained model = chatting(gemma);
  const std::vector<std::int32_t> ids = chat_ids(model, "Hi");
  EXPECT_EQ(ids[0], model.tokenizer->token_to_id("<bos>"));
  EXPECT_EQ(ids[1], model.tokenizer->token_to_id("<start_of_turn>"));
  EXPECT_EQ(model.tokenizer->decode(ids, {.skip_special_tokens = false}),
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(chat_stop_token(model), model.tokenizer->token_to_id("<end_of_turn>"));
  expect_refused([&] { chat_ids(model, "Hi<end_of_turn>"); }, {"spells a special token"});
  expect_refused([&] { chat_ids(chatting("{{ 'USER: ' }}"), "Hi"); },
                 {"chat template of an unknown format", "ChatML, Llama 3"});
}

/// The template of a folder, and warnings about it.
struct TemplateRead {
  std::optional<std::string> text;
  std::vector<std::string> warnings;
};
TemplateRead read_from(const TemporaryFolder& folder) {
  TemplateRead made;
  made.text = read_chat_template(folder.path(), made.warnings);
  return made;
}
void expect_warning(const TemporaryFolder& folder, const std::string& words) {
  const TemplateRead read = read_from(folder);
  EXPECT_EQ(read.text, std::nullopt);
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_NE(read.warnings[0].find(words), std::string::npos) << read.warnings[0];
}

TEST(ChatTemplate, IsAFileOrATextOrTheDefaultOfAList) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_from(folder).text, std::nullopt);
  const auto config = [&](const Json& value) {
    put(folder / "tokenizer_config.json", Json{{"chat_template", value}}.dump());
  };
  config(gemma);
  EXPECT_EQ(read_from(folder).text, gemma);
  const Json tool = {{"name", "tool_use"}, {"template", phi}};
  const Json usual = {{"name", "default"}, {"template", llama3}};
  config(Json::array({tool, usual}));
  const TemplateRead listed = read_from(folder);
  EXPECT_EQ(listed.text, llama3);
  EXPECT_TRUE(listed.warnings.empty());
  put(folder / "chat_template.jinja", zephyr);
  EXPECT_EQ(read_from(folder).text, zephyr);
}

TEST(ChatTemplate, WhatCannotBeUsedGivesAWarning) {
  const TemporaryFolder folder;
  const std::string config = folder / "tokenizer_config.json";
  for (const char* list :
       {"[]", R"([{"name": "tool_use", "template": "x"}])", R"([{"name": "default"}])",
        R"([{"name": "default", "template": 3}])", R"(["default", 3, null, {"name": {}}])"}) {
    put(config, std::string(R"({"chat_template": )") + list + "}");
    expect_warning(folder,
                   "tokenizer_config.json: chat_template is ignored, expected a text or "
                   "one named \"default\"");
  }
  put(config, R"({"chat_template": 3})");
  expect_warning(folder, "chat_template is ignored, expected a text");
  for (const char* none : {R"({"chat_template": null})", "{}", "[]"}) {
    put(config, none);
    EXPECT_TRUE(read_from(folder).warnings.empty()) << none;
  }
  put(folder / "chat_template.jinja", "{{ 'caf\xe9' }}");
  expect_warning(folder, "chat_template.jinja: the chat template is ignored: no UTF-8 at byte 7");
}

TEST(ChatTemplate, LinksStayInsideTheModel) {
  const TemporaryFolder folder, outside;
  for (const char* name : {"tokenizer_config.json", "chat_template.jinja"}) {
    put(outside / name, "{}");
    fs::create_symlink(outside / name, folder / name);
    expect_broken([&] { read_from(folder); }, {name, "is a link to", outside.path(), "outside of"});
  }
  fs::remove(folder / "chat_template.jinja");
  put(folder / "other.jinja", gemma);
  fs::create_symlink("other.jinja", folder / "chat_template.jinja");
  EXPECT_EQ(read_from(folder).text, gemma);
}

}  // namespace
}  // namespace rapt::test
