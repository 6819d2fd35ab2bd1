#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "rapt/pretrained.h"
#include "support/folder.h"

namespace rapt::test {
namespace {

TEST(FindModel, SaysWhereItLookedAndWhatToInstall) {
  expect_broken([] { find_model("no-such-model"); }, {"minilm or smollm2", "downloads nothing"});
  const TemporaryFolder folder;
  put(folder.path() + "/mine.gguf", "x");
  std::filesystem::create_directory(folder.path() + "/none");  // no model lies there
  setenv("RAPT_MODELS", (":/nowhere:" + folder.path()).c_str(), 1);
  EXPECT_EQ(find_model("mine"), folder.path() + "/mine.gguf");
  expect_broken([] { find_model("nine"); },
                {"not in $RAPT_MODELS either", "did you mean \"mine\""});
  unsetenv("RAPT_MODELS");
  expect_broken([] { find_model("minlm"); }, {"names no folders", "did you mean \"minilm\""});
}

TEST(FindModel, IsNamedWhereAPathIsExpected) {
  expect_broken([] { read_pretrained("minilm"); },
                {"\"minilm\": no such file or folder, expected the path", "find_model"});
  expect_broken([] { outline_pretrained("minilm"); }, {"find_model"});
  expect_broken([] { read_pretrained("/nowhere/minilm"); }, {"/nowhere/minilm: cannot be "});
}

}  // namespace
}  // namespace rapt::test
