// For tests/scripts/checkpoint_faults.py, which lets it fail in every place.
//   checkpoint_tool save FOLDER STEP   saves numbers that tell the step
//   checkpoint_tool check FOLDER       prints the latest step if every number is of that step
#include <iostream>

#include "train/run/checkpoint_store.h"

namespace {

using namespace rapt;
using namespace rapt::detail;

float number_of(Index step, Index place) { return static_cast<float>(step * 1000 + place); }

void save(const std::string& folder, Index step) {
  CheckpointStore store(folder, {.keep = 2, .shard_bytes = 3000});
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  for (Index i = 0; i < 4; ++i) {
    tensors.emplace_back(Shape{20, 25});
    for (float& number : tensors.back().numbers()) number = number_of(step, i);
  }
  for (Index i = 0; i < 4; ++i)
    named.push_back({"t" + std::to_string(i), tensors[static_cast<std::size_t>(i)]});
  store.save(step, named, {{"position", step * 7}});
  for (const std::string& notice : store.take_warnings()) std::cerr << "notice: " << notice << '\n';
}

int check(const std::string& folder) {
  CheckpointStore store(folder);
  const std::optional<Index> step = store.latest();
  for (const std::string& notice : store.take_warnings()) std::cerr << "notice: " << notice << '\n';
  if (!step) {
    std::cout << "none\n";
    return 0;
  }
  const Checkpoint checkpoint = store.load(*step);
  bool whole = checkpoint.tensors.size() == 4 && checkpoint.state == Json{{"position", *step * 7}};
  for (Index i = 0; i < 4 && whole; ++i)
    for (const float number : checkpoint.tensors.at("t" + std::to_string(i)).numbers())
      whole = whole && number == number_of(*step, i);
  std::cout << (whole ? std::to_string(*step) : "mixture") << '\n';
  return 0;
}

}  // namespace

int main(int count, char** words) try {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 3 && arguments[0] == "save") {
    save(arguments[1], std::stoll(arguments[2]));
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "check") return check(arguments[1]);
  std::cerr << "checkpoint_tool: see the beginning of its source\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << "checkpoint_tool: " << error.what() << '\n';
  return 1;
}
