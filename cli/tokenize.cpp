#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/console/output.h"
#include "cli/models/find_model.h"
#include "cli/models/token_ids.h"
#include "cli/models/utf8.h"
#include "rapt/models/pretrained.h"

namespace rapt::cli {
namespace {

struct TokenizeCommand {
  std::string model;
  // Two options, because a list would lose the brackets of "[SEP]".
  std::optional<std::string> text, pair;
  std::vector<std::string> ids;
  EncodeOptions encode = {};
  DecodeOptions decoding;
  bool tokens = false, decode = false, json = false;
};

std::string input() { return read_all(std::cin, "tokenize: standard input"); }

std::vector<std::int32_t> ids_to_decode(const std::string& text) {
  if (auto ids = token_ids_in(text)) return *std::move(ids);
  throw std::invalid_argument(
      fmt::format("tokenize: --decode of {}, expected numbers",
                  Json(text.substr(0, 100)).dump(-1, ' ', false, Json::error_handler_t::replace)));
}

/// JSON is UTF-8; invalid bytes become U+FFFD.
void print_safely(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void decode(const TokenizeCommand& command, const Tokenizer& tokenizer, const std::string& text) {
  const std::string result = tokenizer.decode(ids_to_decode(text), command.decoding);
  if (command.json) return print_safely({{"text", result}});
  fmt::print("{}\n", result);
}

std::vector<std::string> spellings(const Tokenizer& tokenizer,
                                   const std::vector<std::int32_t>& ids) {
  std::vector<std::string> result;
  for (const std::int32_t id : ids) result.push_back(tokenizer.id_to_token(id));
  return result;
}

/// One line each, quoted: a spelling may have spaces and line ends.
void print_tokens(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids)
    fmt::print(
        "{:>7}  {}\n", id,
        Json(tokenizer.id_to_token(id)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

void run(const TokenizeCommand& command) {
  const Tokenizer tokenizer = load_tokenizer(find_model(command.model));
  if (!command.ids.empty() && !command.decode)
    throw std::invalid_argument(
        fmt::format("tokenize: {} texts, expected one (in quotes, if it has spaces); only --decode "
                    "takes several",
                    command.ids.size() + 1));
  const std::string text = command.text && *command.text != "-" ? *command.text : input();
  if (command.decode) {
    std::vector<std::string> words = {text};
    words.insert(words.end(), command.ids.begin(), command.ids.end());
    return decode(command, tokenizer, fmt::format("{}", fmt::join(words, " ")));
  }
  check_utf8("tokenize: the text", text, tokenizer);
  if (command.pair) check_utf8("tokenize: --pair", *command.pair, tokenizer);
  const Encoding encoding = command.pair
                                ? tokenizer.encode_pair(text, *command.pair, command.encode)
                                : tokenizer.encode(text, command.encode);
  if (command.json)
    return print_safely({{"ids", encoding.ids},
                         {"type_ids", encoding.type_ids},
                         {"tokens", spellings(tokenizer, encoding.ids)}});
  if (command.tokens) return print_tokens(tokenizer, encoding.ids);
  fmt::print("{}\n", fmt::join(encoding.ids, " "));
}

}  // namespace

void add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into tokens and back");
  const auto options = std::make_shared<TokenizeCommand>();
  command
      ->add_option("model", options->model,
                   "tokenizer.json, a folder that has one, a GGUF file, or the name of a model")
      ->required();
  command->add_option("text", options->text,
                      "Text, or with --decode ids (default, and -: standard input)");
  command->add_option("ids", options->ids, "With --decode: more ids");
  command->add_option("--pair", options->pair, "A second text, for models that compare two");
  command->add_flag("--list", options->tokens, "Print a line for each token: its id and spelling");
  command->add_flag("--decode", options->decode, "From ids to text")->excludes("--pair", "--list");
  command->add_flag("--add-special-tokens,!--no-add-special-tokens",
                    options->encode.add_special_tokens,
                    "Add the special tokens that the model was trained with (default), or none");
  command->add_flag("--parse-special", options->encode.parse_special,
                    "Special tokens spelled out in the text become those tokens");
  command
      ->add_flag("--skip-special-tokens,!--no-skip-special-tokens",
                 options->decoding.skip_special_tokens,
                 "With --decode: leave special tokens out, or spell them out")
      ->needs("--decode");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
