#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rapt::test {

/// An empty folder that goes when the test does.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "rapt-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void put(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The call must throw std::runtime_error, the outside world's fault, whose text holds every word.
template <class Call>
void expect_broken(const Call& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected a refusal naming " << ::testing::PrintToString(words);
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected std::runtime_error, got: " << error.what();
  }
}

}  // namespace rapt::test
