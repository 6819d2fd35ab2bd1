// Sentence embeddings: the texts that are nearest to a query.
//
//   build/release/bin/example_embeddings MODEL [QUERY TEXT...]
//
// MODEL is a folder of Hugging Face or sentence-transformers, such as all-MiniLM-L6-v2, or a GGUF
// file of a BERT.

#include <rapt/models/pretrained.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <numeric>
#include <span>

namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

void print_nearest(const rapt::Pretrained& model, const std::vector<std::string>& texts) {
  const rapt::Tensor vectors = rapt::embed_texts(model, texts);  // [texts, width]
  const std::size_t width = static_cast<std::size_t>(vectors.shape()[1]);
  const auto row = [&](std::size_t text) { return vectors.numbers().subspan(text * width, width); };

  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t text = 1; text < texts.size(); ++text)
    order.emplace_back(cosine(row(0), row(text)), text);
  std::sort(order.rbegin(), order.rend());

  std::printf("%s, vectors of %zu numbers\n%s\n", model.family.c_str(), width, texts[0].c_str());
  for (const auto& [similarity, text] : order)
    std::printf("%7.3f  %s\n", similarity, texts[text].c_str());
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 2 && count < 4) {
    std::fprintf(stderr, "usage: %s MODEL [QUERY TEXT...]\n", arguments[0]);
    return 2;
  }
  std::vector<std::string> texts(arguments + 2, arguments + count);  // the query first
  if (texts.empty())
    texts = {"How do I make the program faster?", "Profile it and look at the slowest function.",
             "The museum opens at nine.", "Use more threads, or better algorithms.",
             "Bake the bread for forty minutes."};
  print_nearest(rapt::load_pretrained(arguments[1]), texts);
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
