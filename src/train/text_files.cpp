#include "train/text_files.h"

#include <algorithm>
#include <span>
#include <system_error>

#include "base/check.h"
#include "base/input.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t longest_piece_bytes = std::size_t{1} << 24;

class FolderWalk {
 public:
  std::vector<std::string> files;

  void enter(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::regular) return files.push_back(path.string());
    if (status.type() == fs::file_type::directory) return enter_folder(path);
    if (error) fail_input("data: ", path.string(), " cannot be read: ", error.message());
    fail_input("data: ", path.string(), " is neither a file nor a folder");
  }

 private:
  void enter_folder(const fs::path& path) {
    std::error_code error;
    for (const fs::path& above : above_)
      if (fs::equivalent(above, path, error))
        fail_input("data: the link ", path.string(), " leads back to the folder ", above.string());
    std::vector<fs::path> inside;
    auto entry = fs::directory_iterator(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error))
      if (!entry->path().filename().string().starts_with('.')) inside.push_back(entry->path());
    if (error) fail_input("data: the folder ", path.string(), " cannot be read: ", error.message());
    std::sort(inside.begin(), inside.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    above_.push_back(path);
    for (const fs::path& each : inside) enter(each);
    above_.pop_back();
  }

  std::vector<fs::path> above_;
};

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

std::vector<std::string> files_of(const std::string& path) {
  FolderWalk walk;
  walk.enter(path);
  if (walk.files.empty()) fail_input("data: the folder ", path, " holds no files");
  return std::move(walk.files);
}

FileReader::FileReader(const std::string& path, Pause pause)
    : file_(path),
      time_(fs::last_write_time(path)),
      room_(piece_bytes, '\0'),
      pause_(std::move(pause)) {}

std::string_view FileReader::next() {
  call(pause_);
  const auto left = static_cast<std::size_t>(file_.size() - offset_);
  const std::span<char> bytes = std::span(room_).first(std::min(left, room_.size()));
  file_.read(offset_, std::as_writable_bytes(bytes));
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
                 const Pause& pause) {
  FileReader reader(path, pause);
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

std::vector<std::string> sample_texts(const std::string& path, Index limit, const Pause& pause) {
  check(limit >= 1, "sample_texts: limit is ", limit, " bytes, expected at least 1");
  const std::vector<std::string> files = files_of(path);
  double total = 0;
  for (const std::string& file : files) total += static_cast<double>(fs::file_size(file));
  const double part = std::min(1.0, static_cast<double>(limit) / std::max(total, 1.0));
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    const auto size = static_cast<std::size_t>(fs::file_size(file));
    const auto share = static_cast<std::size_t>(part * static_cast<double>(size));
    std::string text;
    FileReader reader(file, pause);
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

}  // namespace rapt
