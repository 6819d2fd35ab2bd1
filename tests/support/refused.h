#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace rapt::test {

/// The message of the std::invalid_argument that a call throws.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

/// The call must throw std::invalid_argument whose text holds every word.
template <class Call>
void expect_refused(const Call& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected a refusal naming " << ::testing::PrintToString(words);
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected std::invalid_argument, got: " << error.what();
  }
}

}  // namespace rapt::test
