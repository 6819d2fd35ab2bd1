#include "train/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <span>
#include <system_error>

#include "base/check.h"
#include "base/io/check_input.h"
#include "base/io/system_call.h"
#include "base/sizes.h"

namespace rapt::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t longest_piece_bytes = std::size_t{1} << 24;
/// Links that fan out may lead to one folder again and again.
constexpr Index most_visits = 1000;

/// Pictures and PDFs among texts, by their first bytes.
bool is_picture(const fs::path& path) {
  char begin[8] = {};
  const InputFile file(path.string());
  const auto length = to_size(std::min<Index>(file.size(), sizeof begin));
  file.read(0, std::as_writable_bytes(std::span(begin).first(length)));
  const std::string_view bytes(begin, sizeof begin);
  for (const std::string_view mark : {"\x89PNG", "\xFF\xD8\xFF", "GIF8", "RIFF", "%PDF-"})
    if (bytes.starts_with(mark)) return true;
  return false;
}

class FolderWalk {
 public:
  std::vector<std::string> files;

  void enter(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::regular) {
      if (above_.empty() || !is_picture(path)) files.push_back(path.string());
      return;
    }
    if (status.type() == fs::file_type::directory) return enter_folder(path);
    if (error) fail_input("data: ", path.string(), " cannot be read: ", error.message());
    fail_input("data: ", path.string(), " is neither a file nor a folder");
  }

 private:
  void enter_folder(const fs::path& path) {
    std::error_code error;
    struct stat about {};
    if (::stat(path.c_str(), &about) != 0)
      fail_system(errno, "data: the folder ", path.string(), " cannot be read");
    const Place place{about.st_dev, about.st_ino};
    for (const auto& [above, its_place] : above_)
      if (its_place == place)
        fail_input("data: the link ", path.string(), " leads back to the folder ", above.string());
    check_input(++visits_[place] <= most_visits, "data: links lead to the folder ", path.string(),
                " more than ", most_visits, " times");
    std::vector<fs::path> inside;
    auto entry = fs::directory_iterator(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error))
      if (!entry->path().filename().string().starts_with('.')) inside.push_back(entry->path());
    if (error) fail_input("data: the folder ", path.string(), " cannot be read: ", error.message());
    std::sort(inside.begin(), inside.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    above_.emplace_back(path, place);
    for (const fs::path& each : inside) enter(each);
    above_.pop_back();
  }

  using Place = std::pair<dev_t, ino_t>;
  std::vector<std::pair<fs::path, Place>> above_;
  std::map<Place, Index> visits_;
};

/// Compressed text would be read as noise.
void check_unpacked(std::string_view begin, const std::string& path) {
  constexpr std::pair<std::string_view, const char*> marks[] = {{"\x1F\x8B\x08", "gzip"},
                                                                {"PK\x03\x04", "zip"},
                                                                {"\xFD"
                                                                 "7zXZ",
                                                                 "xz"},
                                                                {"\x28\xB5\x2F\xFD", "zstd"}};
  const auto refuse = [&](bool packed, const char* packer) {
    check_input(!packed, "data: ", path, " is packed by ", packer,
                ", expected text: unpack it first");
  };
  for (const auto& [mark, packer] : marks) refuse(begin.starts_with(mark), packer);
  // Between the two is a digit, the compression level.
  refuse(begin.size() > 4 && begin.starts_with("BZh") && begin.substr(4).starts_with("1AY&SY"),
         "bzip2");
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

std::vector<std::string> files_of(const std::string& path) {
  FolderWalk walk;
  walk.enter(path);
  if (walk.files.empty()) fail_input("data: the folder ", path, " holds no files of text");
  return std::move(walk.files);
}

FileReader::FileReader(const std::string& path, CancelCheck cancel_check)
    : file_(path),
      time_(fs::last_write_time(path)),
      buffer_(std::min(piece_bytes, to_size(file_.size())), '\0'),
      cancel_check_(std::move(cancel_check)) {}

std::string_view FileReader::next() {
  check_cancelled(cancel_check_);
  const auto left = to_size(file_.size() - offset_);
  const std::span<char> bytes = std::span(buffer_).first(std::min(left, buffer_.size()));
  file_.read(offset_, std::as_writable_bytes(bytes));
  if (offset_ == 0) check_unpacked({bytes.data(), bytes.size()}, file_.path());
  offset_ += static_cast<Index>(bytes.size());
  // By path, so that another file in its place is noticed too.
  if (bytes.empty() && (fs::last_write_time(file_.path()) != time_ ||
                        static_cast<Index>(fs::file_size(file_.path())) != offset_))
    fail_input("data: ", file_.path(), " changed while it was read");
  return {bytes.data(), bytes.size()};
}

std::size_t word_cut(std::string_view text, std::size_t after) {
  for (std::size_t at = text.size(); --at > after;)
    if (text[at] == ' ' && text[at - 1] > ' ' && text[at - 1] < 0x7F) return at;
  return 0;
}

std::size_t character_cut(std::string_view text) {
  for (std::size_t at = text.size(); at > 0 && at + 4 > text.size();) {
    --at;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (continues_character(text[at])) continue;
    const std::size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return at + length <= text.size() || at == 0 ? text.size() : at;
  }
  return text.size();
}

void read_pieces(const std::string& path, const std::function<void(std::string_view)>& take,
                 const CancelCheck& cancel_check) {
  FileReader reader(path, cancel_check);
  std::string text;
  std::size_t searched = 0;  // no cut up to here
  for (std::string_view bytes = reader.next(); !bytes.empty(); bytes = reader.next()) {
    text += bytes;
    if (text.size() < piece_bytes) continue;
    std::size_t cut = word_cut(text, searched);
    if (cut == 0 && text.size() >= longest_piece_bytes) cut = character_cut(text);
    searched = cut == 0 ? text.size() - 1 : 0;
    if (cut == 0) continue;
    take(std::string_view(text).substr(0, cut));
    text.erase(0, cut);
  }
  if (!text.empty()) take(text);
}

std::vector<std::string> sample_texts(const std::string& path, Index limit,
                                      const CancelCheck& cancel_check) {
  check(limit >= 1, "sample_texts: limit is ", limit, " bytes, expected at least 1");
  const std::vector<std::string> files = files_of(path);
  double total = 0;
  for (const std::string& file : files) total += static_cast<double>(fs::file_size(file));
  const double part = std::min(1.0, static_cast<double>(limit) / std::max(total, 1.0));
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    const std::uintmax_t size = fs::file_size(file);
    const auto share = static_cast<std::size_t>(part * static_cast<double>(size));
    std::string text;
    FileReader reader(file, cancel_check);
    while (text.size() < share) {
      const std::string_view bytes = reader.next();
      if (bytes.empty()) break;
      text += bytes.substr(0, share - text.size());
    }
    if (text.empty()) continue;
    if (text.size() < size) text.resize(word_cut(text) > 0 ? word_cut(text) : character_cut(text));
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace rapt::detail
