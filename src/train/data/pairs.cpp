#include "train/data/pairs.h"

#include <algorithm>

#include "base/io/check_input.h"
#include "base/random.h"

namespace rapt::detail {
namespace {

/// A line is held in memory whole; what is longer is no line.
constexpr std::size_t longest_line_bytes = std::size_t{1} << 24;

std::uint64_t hash(std::string_view text) {
  std::uint64_t sum = 0;
  for (const char byte : text) sum = scrambled(sum ^ static_cast<unsigned char>(byte));
  return scrambled(sum ^ text.size());
}

}  // namespace

Pairs::Pairs(const std::string& path, const Tokenizer& tokenizer, Index longest,
             const CancelCheck& cancel_check) {
  for (const std::string& file : files_of(path)) {
    FileReader reader(file, cancel_check);
    read(reader, tokenizer, {file, 1, longest});
  }
}

void Pairs::read(FileReader& reader, const Tokenizer& tokenizer, Where where) {
  std::string line;
  for (std::string_view bytes = reader.next(); !bytes.empty(); bytes = reader.next())
    while (!bytes.empty()) {
      const std::size_t end = std::min(bytes.find('\n'), bytes.size());
      line += bytes.substr(0, end);
      if (line.size() > longest_line_bytes)
        fail_input("data: ", where.path, ", line ", where.line, " is longer than ",
                   longest_line_bytes, " bytes");
      bytes.remove_prefix(end);
      if (bytes.empty()) break;
      bytes.remove_prefix(1);
      append_line(line, tokenizer, where);
      line.clear();
      ++where.line;
    }
  if (!line.empty()) append_line(line, tokenizer, where);
}

void Pairs::append_line(std::string_view line, const Tokenizer& tokenizer, const Where& where) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs != 1)
    fail_input("data: ", where.path, ", line ", where.line, " has ", tabs,
               " tabs, expected one between source and target");
  const std::size_t tab = line.find('\t');
  const std::string_view source = line.substr(0, tab), target = line.substr(tab + 1);
  append_side(source, tokenizer, where);
  append_side(target, tokenizer, where);
  keys_.push_back(hash(source));
}

void Pairs::append_side(std::string_view text, const Tokenizer& tokenizer, const Where& where) {
  const std::vector<std::int32_t> tokens =
      tokenizer.encode(text, {.add_special_tokens = false}).ids;
  if (tokens.empty())
    fail_input("data: ", where.path, ", line ", where.line,
               " has an empty source or target, expected text on both sides of the tab");
  const auto count = static_cast<Index>(tokens.size()) + 1;
  if (count > where.longest)
    fail_input("data: ", where.path, ", line ", where.line, " has a side of ", count,
               " tokens with its eos, expected at most ", where.longest);
  for (const std::int32_t token : tokens)
    fingerprint_ = scrambled(fingerprint_ ^ static_cast<std::uint64_t>(token));
  fingerprint_ = scrambled(~fingerprint_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  begins_.push_back(static_cast<Index>(tokens_.size()));
}

}  // namespace rapt::detail
