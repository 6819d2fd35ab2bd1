#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace rapt::test {

/// The call must throw this error, and its text must hold every word.
template <class Error, class Call>
void expect_thrown(const Call& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "accepted; expected a refusal naming " << ::testing::PrintToString(words);
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const std::string& word : words)
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in: " << text;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error than expected: " << error.what();
  }
}

/// The call must throw std::invalid_argument whose text holds every word.
template <class Call>
void expect_refused(const Call& call, const std::vector<std::string>& words) {
  expect_thrown<std::invalid_argument>(call, words);
}

}  // namespace rapt::test
