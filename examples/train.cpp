// Trains a small decoder on a text, loads it again and lets it go on from a prompt.

#include <rapt/generate.h>
#include <rapt/train.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

int main() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "rapt-example-train";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string text = folder / "rhyme.txt", run = folder / "run";
  for (std::ofstream out(text); out.tellp() < 20'000;)
    out << "the hare sees the hound, the hound sees the hare, and round they go;\n";

  rapt::RunConfig config;
  config.model.vocabulary = 0;  // that of the data: bytes
  config.model.width = 64;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.patterns = {"causal & window(31, 0)"};
  config.data.path = text;
  config.data.tokens = 128;
  config.train.steps = config.train.schedule.steps = 60;
  config.train.schedule.peak = 5e-3;
  config.train.log_every = 20;

  rapt::TrainEvents events;
  events.progress = [](const rapt::TrainProgress& p) {
    std::printf("step %ld: loss %.3f\n", static_cast<long>(p.step), p.loss);
  };
  rapt::train(config, run, events);

  rapt::LoadedRun loaded = rapt::load_run(run);
  const std::vector<std::vector<std::int32_t>> prompts = {loaded.tokenizer->encode("the hound")};
  const auto said =
      rapt::generate(loaded.model, prompts, {.sampling = {.temperature = 0}, .tokens = 40});
  std::printf("the hound%s\n", loaded.tokenizer->decode(said[0].ids).c_str());
  std::filesystem::remove_all(folder);
}
