// Training from C++: train a small decoder on a text, load it again and let it continue a prompt.
//
//   build/release/bin/example_train
//
// The folder that train() writes is the same as that of `rapt train`: a run that was interrupted
// resumes bit for bit, and `rapt generate`, `rapt inspect` and `rapt convert` read it.

#include <rapt/models/generate.h>
#include <rapt/models/train.h>

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

  rapt::RunConfig config;  // bytes as tokens, unless config.tokenizer says otherwise
  config.model.hidden_size = 64;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.patterns = {rapt::causal() & rapt::window(31, 0)};  // layer i has pattern i mod size
  config.data.path = text;
  config.data.tokens = 128;
  config.train.steps = 60;
  config.train.learning_rate = 5e-3;
  config.train.log_every = 20;

  rapt::TrainEvents events;
  events.progress = [](const rapt::TrainProgress& p) {
    std::printf("step %ld: loss %.3f\n", static_cast<long>(p.step), p.loss);
  };
  events.evaluation = [](const rapt::Evaluation& e) {
    std::printf("held-out text: loss %.3f, %.0f %% of the bytes predicted\n", e.loss,
                100 * e.accuracy);
  };
  rapt::train(config, run, rapt::ExistingRun::resume, events);

  const rapt::LoadedRun loaded = rapt::load_run(run);
  const std::vector<std::vector<std::int32_t>> prompts = {
      loaded.tokenizer->encode("the hound").ids};
  const auto made =
      rapt::generate(loaded.model, prompts, {.sampling = {.temperature = 0}, .max_new_tokens = 40});
  std::printf("the hound%s\n", loaded.tokenizer->decode(made[0].ids).c_str());
  std::filesystem::remove_all(folder);
}
