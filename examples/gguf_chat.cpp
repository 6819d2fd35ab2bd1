// Chat with a pretrained model; the answer appears token by token.
//
//   build/release/bin/example_gguf_chat MODEL [QUESTION]
//
// MODEL is a GGUF file or a folder of Hugging Face. Without a question, every line of standard
// input is one; each is answered separately. A model without a chat template continues the text
// instead.

#include <rapt/models/generate.h>
#include <rapt/models/pretrained.h>

#include <exception>
#include <iostream>
#include <string>

namespace {

void answer(const rapt::Pretrained& loaded, const std::string& question) {
  const bool chat = loaded.chat_template.has_value();
  const std::vector<std::vector<std::int32_t>> prompts = {
      chat ? rapt::chat_ids(loaded, question) : rapt::prompt_ids(loaded, question)};

  rapt::GenerateOptions options{.sampling = {.temperature = 0.2, .top_p = 0.9},
                                .max_new_tokens = 256};
  options.vocab_size = loaded.tokenizer->vocab_size();
  options.stop_tokens = loaded.special_tokens.eos;
  if (chat) options.stop_tokens.push_back(rapt::chat_stop_token(loaded));

  // A character may take several tokens: the stream holds its bytes back until it is whole.
  rapt::DecodeStream stream(*loaded.tokenizer);
  rapt::GenerateEvents events;
  events.token = [&](rapt::Index, std::int32_t id) { std::cout << stream.step(id) << std::flush; };
  const auto answers = rapt::generate(loaded.model, prompts, options, events);
  std::cout << stream.finish() << std::endl;
  std::cerr << "[" << answers[0].ids.size() << " tokens, finish reason "
            << rapt::to_string(answers[0].finish_reason) << "]\n";
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2 && count != 3) {
    std::cerr << "usage: " << arguments[0] << " MODEL [QUESTION]\n";
    return 2;
  }
  rapt::Pretrained loaded = rapt::load_pretrained(arguments[1]);
  for (const std::string& warning : loaded.warnings) std::cerr << warning << '\n';
  if (!loaded.tokenizer) {
    std::cerr << arguments[1] << " has no tokenizer\n";
    return 1;
  }
  loaded.model.pack();  // weights in the order in which single tokens read them
  if (count == 3) {
    answer(loaded, arguments[2]);
    return 0;
  }
  std::string question;
  while (std::cerr << "> ", std::getline(std::cin, question))
    if (!question.empty()) answer(loaded, question);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
