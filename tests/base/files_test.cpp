#include "base/io/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <system_error>

#include "base/io/file_lock.h"
#include "support/temporary_folder.h"

namespace rapt::test {
using namespace detail;
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Files, HashIsXxh3WhateverTheParts) {
  // XXH3-128 of nothing and of "abc", as `xxhsum -H2` prints them.
  EXPECT_EQ(hash_of({}).text(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_of(bytes_of("abc")).text(), "06b05ab6733a618578af5f94892f3950");
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i);
  Hasher hasher;
  for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step * 2 + 1)
    hasher.add(bytes_of(std::string_view(text).substr(at, step)));
  EXPECT_EQ(hasher.hash(), hash_of(bytes_of(text)));
}

TEST(Files, AreReadInPartsAndWhole) {
  TemporaryFolder folder;
  put(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  EXPECT_EQ(file.size(), 10);
  std::string buffer(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(buffer)));
  EXPECT_EQ(buffer, "3456");
  expect_broken([&] { file.read(8, std::as_writable_bytes(std::span(buffer))); },
                {folder / "a", "ends at byte 10, 2 bytes before it should"});
  EXPECT_EQ(read_file(folder / "a", 10), "0123456789");
  expect_broken([&] { read_file(folder / "a", 9); },
                {folder / "a", "10 bytes long, the limit is 9"});
  EXPECT_EQ(digest_of(folder / "a"), (FileDigest{10, hash_of(bytes_of("0123456789"))}));
}

TEST(Files, AreWrittenAndReplaced) {
  TemporaryFolder folder;
  OutputFile file(folder / "a");
  file.write("ab");
  file.write("c");
  EXPECT_EQ(file.finish(), digest_of(folder / "a"));
  expect_broken([&] { OutputFile again(folder / "a"); },
                {folder / "a", "cannot be created", "exists"});
  replace_file(folder / "a", "new");
  EXPECT_EQ(get(folder / "a"), "new");
  struct stat about {};
  ASSERT_EQ(stat((folder / "a").c_str(), &about), 0);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(about.st_mode & 0777, 0666 & ~mask);
  expect_broken([&] { replace_file(folder / "none/a", "x"); }, {"none/a", "No such file"});
  std::filesystem::create_directories(folder / "taken/inside");
  expect_broken([&] { replace_file(folder / "taken", "x"); }, {"cannot become"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);  // no rest
}

/// Runs it in a process of its own whose standard streams are closed; its exit code.
int with_closed_streams(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int stream : {0, 1, 2}) close(stream);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(Files, NeverBecomeAStandardStream) {
  TemporaryFolder folder;
  put(folder / "a", "0123456789");
  const auto say = [] {  // what a program may do that does not know of its closed streams
    for (const int stream : {0, 1, 2})
      if (write(stream, "a message\n", 10) >= 0) return false;
    return true;
  };
  EXPECT_EQ(with_closed_streams([&] {
              const InputFile in(folder / "a");
              OutputFile out(folder / "b");
              const FileLock lock(folder / "lock");
              const bool apart = say();
              out.write("ours");
              out.finish();
              return apart;
            }),
            0);
  EXPECT_EQ(get(folder / "b"), "ours");
  EXPECT_EQ(get(folder / "a"), "0123456789");
  EXPECT_EQ(get(folder / "lock").find("message"), std::string::npos);
}

TEST(Files, ErrorsCarryTheSystemsReason) {
  try {
    InputFile file("/nowhere/at/all");
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::no_such_file_or_directory);
  }
  TemporaryFolder folder;
  expect_broken([] { sync_folder("/nowhere"); }, {"/nowhere", "No such file"});
  expect_broken([&] { rename_path(folder / "a", folder / "b"); }, {"cannot become"});
  expect_broken([&] { exchange_paths(folder / "a", folder / "b"); }, {"cannot be exchanged"});
  make_folder(folder / "a");
  expect_broken([&] { make_folder(folder / "a"); }, {"exists"});
  EXPECT_EQ(folder_of("a"), ".");
  EXPECT_EQ(folder_of("/a"), "/");
  EXPECT_EQ(folder_of("a/b/c"), "a/b");
}

}  // namespace
}  // namespace rapt::test
