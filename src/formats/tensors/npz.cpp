#include <algorithm>
#include <cstring>
#include <set>

#include "base/io/input.h"
#include "formats/config/json.h"
#include "formats/tensors/npy.h"

namespace rapt {
namespace {

constexpr Index end_bytes = 22, entry_bytes = 46, local_bytes = 30;
constexpr Index max_comment = 65535, max_directory_bytes = Index{16} << 20;

template <class T>
Index number_at(std::string_view bytes, Index place) {
  T x;
  std::memcpy(&x, bytes.data() + place, sizeof(T));
  return static_cast<Index>(x);
}

std::string read_part(const InputFile& file, Index offset, Index bytes) {
  std::string part(static_cast<std::size_t>(bytes), '\0');
  file.read(offset, std::as_writable_bytes(std::span(part)));
  return part;
}

/// The list of what is in an archive.
struct Directory {
  std::string bytes;
  Index offset, entries;
};
Directory read_directory(const InputFile& file) {
  const std::string& path = file.path();
  const Index tail_bytes = std::min(file.size(), end_bytes + max_comment);
  const std::string tail = read_part(file, file.size() - tail_bytes, tail_bytes);
  const std::size_t found = tail.rfind("PK\5\6");
  check_input(found != std::string::npos && static_cast<Index>(found) + end_bytes <= tail_bytes,
              path, ": is no .npz archive, its end is missing");
  const std::string_view end = std::string_view(tail).substr(found);
  const Index entries = number_at<std::uint16_t>(end, 10);
  const Index bytes = number_at<std::uint32_t>(end, 12), offset = number_at<std::uint32_t>(end, 16);
  const Index end_offset = file.size() - tail_bytes + static_cast<Index>(found);
  check_input(entries != 0xFFFF && offset != 0xFFFFFFFF, path, ": byte ", end_offset,
              ": an archive of more than 65534 arrays or 4 GiB, which is not supported");
  check_input(bytes <= max_directory_bytes && offset <= end_offset &&
                  bytes <= end_offset - offset && entries <= bytes / entry_bytes,
              path, ": byte ", end_offset, ": the list of arrays lies outside of the file");
  return {read_part(file, offset, bytes), offset, entries};
}

/// Where the bytes of an entry are.
struct Entry {
  std::string name;
  Index offset, bytes;
};

Entry entry_at(const InputFile& file, const Directory& directory, Index& at) {
  const std::string& path = file.path();
  const std::string_view all = directory.bytes;
  const Index place = directory.offset + at;
  check_input(at + entry_bytes <= static_cast<Index>(all.size()) &&
                  all.substr(static_cast<std::size_t>(at)).starts_with("PK\1\2"),
              path, ": byte ", place, ": no entry of the list of arrays, where one should be");
  const std::string_view e = all.substr(static_cast<std::size_t>(at));
  const Index name_bytes = number_at<std::uint16_t>(e, 28);
  const Index length =
      entry_bytes + name_bytes + number_at<std::uint16_t>(e, 30) + number_at<std::uint16_t>(e, 32);
  check_input(length <= static_cast<Index>(e.size()), path, ": byte ", place,
              ": an entry is longer than the list it is in");
  Entry entry{std::string(e.substr(entry_bytes, static_cast<std::size_t>(name_bytes))),
              number_at<std::uint32_t>(e, 42), number_at<std::uint32_t>(e, 24)};
  const auto method = number_at<std::uint16_t>(e, 10);
  check_input((number_at<std::uint16_t>(e, 8) & 1) == 0, path, ": byte ", place, ": array ",
              printable(entry.name), " is encrypted");
  check_input(method == 0, path, ": byte ", place, ": array ", printable(entry.name),
              " is compressed (method ", method, "), expected an archive of numpy.savez");
  check_input(entry.bytes == number_at<std::uint32_t>(e, 20) && entry.bytes != 0xFFFFFFFF &&
                  entry.offset != 0xFFFFFFFF,
              path, ": byte ", place, ": array ", printable(entry.name),
              " has sizes that disagree, or more than 4 GiB");
  at += length;
  return entry;
}

/// Entries say where their header is, which has a name and other things of a length of its own.
void pass_local_header(const InputFile& file, const Directory& directory, Entry& entry) {
  const Index limit = directory.offset;
  check_input(entry.offset <= limit - local_bytes, file.path(), ": array ", printable(entry.name),
              " begins at byte ", entry.offset, ", beyond the arrays");
  const std::string local = read_part(file, entry.offset, local_bytes);
  check_input(local.starts_with("PK\3\4"), file.path(), ": byte ", entry.offset, ": array ",
              printable(entry.name), " does not begin here");
  entry.offset +=
      local_bytes + number_at<std::uint16_t>(local, 26) + number_at<std::uint16_t>(local, 28);
  check_input(entry.offset <= limit && entry.bytes <= limit - entry.offset, file.path(), ": array ",
              printable(entry.name), " has ", entry.bytes, " bytes from byte ", entry.offset,
              " on, beyond the arrays");
}

}  // namespace

std::vector<NpyFile> open_npz(const std::string& path) {
  const auto file = std::make_shared<const InputFile>(path);
  const Directory directory = read_directory(*file);
  std::vector<NpyFile> arrays;
  std::set<std::string> names;
  Index at = 0;
  for (Index i = 0; i < directory.entries; ++i) {
    Entry entry = entry_at(*file, directory, at);
    pass_local_header(*file, directory, entry);
    if (entry.name.ends_with(".npy")) entry.name.resize(entry.name.size() - 4);
    check_input(names.insert(entry.name).second, path, ": array ", printable(entry.name),
                " occurs twice");
    arrays.push_back(NpyFile(file, std::move(entry.name), entry.offset, entry.bytes));
  }
  return arrays;
}

}  // namespace rapt
