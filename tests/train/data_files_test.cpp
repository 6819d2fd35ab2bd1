#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>

#include "support/refused.h"
#include "support/text_folder.h"
#include "train/data/data.h"
#include "train/data/text_files.h"

// Files as they come: odd, missing, huge, changing.
namespace rapt::test {
using namespace detail;
namespace {

namespace fs = std::filesystem;

std::vector<std::string> pieces_of(const std::string& path) {
  std::vector<std::string> pieces;
  read_pieces(path, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

std::unique_ptr<const Data> text_of(const std::string& path, Index tokens = 16) {
  return open_data({.path = path, .tokens = tokens}, Tokenizer::bytes());
}

TEST(WordCut, IsBeforeASpaceBehindAVisibleAsciiCharacter) {
  EXPECT_EQ(word_cut("one two three"), 7u);
  EXPECT_EQ(word_cut("one two "), 7u);
  EXPECT_EQ(word_cut("one  two"), 3u);
  EXPECT_EQ(word_cut("one\n two"), 0u);
  EXPECT_EQ(word_cut("a b\xC2\xA0 c"), 1u);  // a space that is no ASCII
  EXPECT_EQ(word_cut(" one"), 0u);
  EXPECT_EQ(word_cut("x"), 0u);
}

TEST(CharacterCut, IsBetweenCharacters) {
  EXPECT_EQ(character_cut("abc"), 3u);
  EXPECT_EQ(character_cut("ab\xC3\xA9"), 4u);
  EXPECT_EQ(character_cut("ab\xC3"), 2u);
  EXPECT_EQ(character_cut("ab\xE2\x82"), 2u);
  EXPECT_EQ(character_cut("ab\xF0\x9F\x98"), 2u);
  EXPECT_EQ(character_cut("ab\xF0\x9F\x98\x80"), 6u);
  EXPECT_EQ(character_cut("ab\x80\x80\x80\x80\x80"), 7u);  // no UTF-8
  EXPECT_EQ(character_cut("\xC3"), 1u);                    // never nothing
}

TEST(ReadPieces, GivesEveryByteInPiecesCutAtWords) {
  const TextFolder folder;
  EXPECT_TRUE(pieces_of(folder.write("empty", "")).empty());
  EXPECT_EQ(pieces_of(folder.write("short", "a b")), (std::vector<std::string>{"a b"}));
  std::string text;
  for (int i = 0; text.size() < 3'500'000; ++i)
    text += "word" + std::to_string(i) + (i % 9 ? " " : "\n");
  const auto pieces = pieces_of(folder.write("long", text));
  EXPECT_EQ(pieces.size(), 4u);
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].front(), ' ');
    EXPECT_LT(pieces[i].size(), (1u << 20) + 64);
  }
  EXPECT_EQ(joined(pieces), text);
}

TEST(ReadPieces, EndlessLinesTakeBoundedMemory) {  // CO-04
  const TextFolder folder;
  std::string text;
  while (text.size() < (40u << 20)) text += "\xE2\x82\xAC";  // 3 bytes, so MiB cut through it
  const auto pieces = pieces_of(folder.write("line", text));
  EXPECT_EQ(pieces.size(), 3u);
  for (const std::string& piece : pieces) {
    EXPECT_LE(piece.size(), (17u << 20));
    EXPECT_EQ(piece.size() % 3, 0u);
  }
  EXPECT_EQ(joined(pieces), text);
}

TEST(SampleTexts, TakesTheSamePartOfEveryFile) {
  const TextFolder folder;
  folder.write("a", "one two three four five ");                          // 24 bytes
  folder.write("b", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9");  // 12
  folder.write("c", "");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(
      sample_texts(folder.path(), 1000),
      (Texts{"one two three four five ", "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9"}));
  // Half: "one two thre", "ééé"; a quarter: "one tw", "é" and a half.
  EXPECT_EQ(sample_texts(folder.path(), 18), (Texts{"one two", "\xC3\xA9\xC3\xA9\xC3\xA9"}));
  EXPECT_EQ(sample_texts(folder.path(), 9), (Texts{"one", "\xC3\xA9"}));
  expect_refused([&] { sample_texts(folder.path(), 0); }, {"limit", "0"});
}

TEST(FileReader, NoticesFilesThatChange) {  // CO-06
  const TextFolder folder;
  const std::string text(3'000'000, 'x');
  const std::string path = folder / "f";
  const auto changed = [&](const std::function<void()>& change) {
    folder.write("f", text);
    FileReader reader(path);
    reader.next();
    change();
    expect_broken(
        [&] {
          while (!reader.next().empty()) {
          }
        },
        {path});
  };
  changed([&] { fs::resize_file(path, 1'500'000); });
  changed([&] { fs::resize_file(path, 4'000'000); });
  changed(
      [&] { fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1)); });
  changed([&] { fs::remove(path); });
  changed([&] {
    fs::last_write_time(folder.write("g", text),
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
    fs::rename(folder / "g", path);
  });
}

TEST(FilesOf, FollowsLinksAndRefusesLoops) {  // CO-07
  const TextFolder folder;
  folder.write("a/1", "x");
  folder.write("b/2", "x");
  fs::create_directory_symlink(folder / "a", folder / "c");
  EXPECT_EQ(files_of(folder.path()),
            (std::vector<std::string>{folder / "a/1", folder / "b/2", folder / "c/1"}));
  fs::create_directory_symlink(folder.path(), folder / "b/up");
  expect_broken([&] { files_of(folder.path()); }, {"link", folder / "b/up", "leads back"});
}

TEST(FilesOf, LeavesPicturesAmongTextsOut) {
  const TextFolder folder;
  folder.write("a.md", "text");
  folder.write("b.png", "\x89PNG\r\n\x1A\n");
  folder.write("c.gif", "GIF89a");
  ASSERT_EQ(files_of(folder.path()).size(), 1u);
  EXPECT_TRUE(files_of(folder.path())[0].ends_with("a.md"));
  EXPECT_EQ(files_of(folder / "b.png").size(), 1u) << "who names it wants it";
}

TEST(FilesOf, RefusesWhatCannotBeRead) {
  const TextFolder folder;
  expect_broken([&] { files_of(folder / "none"); }, {folder / "none", "No such file"});
  fs::create_directory(folder / "empty");
  expect_broken([&] { files_of(folder / "empty"); }, {folder / "empty", "no files"});
  folder.write("d/ok", "x");
  fs::create_symlink(folder / "gone", folder / "d/dangling");
  expect_broken([&] { files_of(folder / "d"); }, {folder / "d/dangling", "cannot be read"});
  fs::remove(folder / "d/dangling");
  fs::create_symlink("self", folder / "d/self");
  expect_broken([&] { files_of(folder / "d"); }, {folder / "d/self"});
  fs::remove(folder / "d/self");
  ASSERT_EQ(mkfifo((folder / "d/pipe").c_str(), 0600), 0);
  expect_broken([&] { files_of(folder / "d"); },
                {folder / "d/pipe", "neither a file nor a folder"});
}

TEST(FilesOf, LinksThatFanOutComeToAnEnd) {  // CO-07
  const TextFolder folder;
  for (int i = 30; i >= 0; --i) {
    fs::create_directory(folder / std::to_string(i));
    for (const char* name : {"/a", "/b"})
      if (i < 30)
        fs::create_directory_symlink(folder / std::to_string(i + 1),
                                     folder / std::to_string(i) + name);
  }
  expect_broken([&] { files_of(folder / "0"); },
                {"links lead to the folder", "more than 1000 times"});
}

TEST(FileReader, RefusesWhatIsPacked) {  // CO-09
  const TextFolder folder;
  const std::pair<std::string, const char*> packed[] = {{"\x1F\x8B\x08", "gzip"},
                                                        {"PK\x03\x04", "zip"},
                                                        {"\xFD"
                                                         "7zXZ",
                                                         "xz"},
                                                        {"\x28\xB5\x2F\xFD", "zstd"},
                                                        {"BZh91AY&SY", "bzip2"}};
  for (const auto& [begin, packer] : packed) {
    const std::string path = folder.write("f", begin + std::string(1000, 'x'));
    expect_broken([&] { pieces_of(path); }, {path, std::string("packed by ") + packer, "unpack"});
    expect_broken([&] { sample_texts(path, 100); }, {path, packer});
    expect_broken([&] { text_of(path); }, {path, packer});
  }
  EXPECT_EQ(pieces_of(folder.write("f", "BZh is no mark")).size(), 1u);
}

TEST(OpenData, TextThatIsTooShortSaysHowMuchIsNeeded) {  // CO-01
  const TextFolder folder;
  for (const char* text : {"", "x", "a few words"})
    expect_broken([&] { text_of(folder.write("t", text)); },
                  {folder / "t", "for training", "expected at least 17", "more text"});
  // 302 tokens, 15 of them held out; a window needs 17.
  expect_broken([&] { text_of(folder.write("t", std::string(300, 'x'))); },
                {"15 tokens for evaluation", "expected at least 17"});
  EXPECT_NO_THROW(text_of(folder.write("t", std::string(338, 'x'))));  // 340, of which 17
}

TEST(OpenData, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](const DataOptions& options, const std::vector<std::string>& words) {
    expect_refused([&] { open_data(options, Tokenizer::bytes()); }, words);
  };
  refused({}, {"path"});
  refused({.path = "x", .batch_size = 0}, {"batch_size is 0"});
  refused({.path = "x", .tokens = -3}, {"tokens is -3"});
  refused({.path = "x", .batch_size = 1 << 20, .tokens = 1 << 20}, {"2^31"});
  refused({.path = "x", .eval_batches = -1}, {"eval_batches is -1"});
  refused({.path = "x", .eval_batches = Index{1} << 60}, {"eval_batches", "1000000"});
  for (const double part : {0.0, 1.0, -1.0, std::nan("")})
    refused({.path = "x", .eval_fraction = part}, {"eval_fraction"});
  for (const double part : {0.0, 1.5, std::nan("")})
    refused({.path = "x", .mask_probability = part}, {"mask_probability"});
  expect_refused([] { open_data({.path = "x"}); }, {"x", "tokenizer"});
}

TEST(OpenData, RefusesStepsThatDoNotExist) {
  const auto data =
      open_data({.path = "task:copy", .batch_size = 4, .tokens = 8, .eval_batches = 2});
  expect_refused([&] { data->batch(-1); }, {"step is -1"});
  expect_refused([&] { data->batch(Index{1} << 62); }, {"step is"});
  expect_refused([&] { data->eval_batch(2); }, {"evaluation batch is 2", "0 to 1"});
  expect_refused([&] { data->eval_batch(-1); }, {"evaluation batch is -1"});
}

}  // namespace
}  // namespace rapt::test
