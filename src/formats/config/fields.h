#pragma once

#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "formats/config/json.h"

namespace rapt::detail {

/// The values a number may have, both ends included.
template <class T>
struct Bounds {
  T lowest = std::numeric_limits<T>::lowest();
  T highest = std::numeric_limits<T>::max();
};

/// A key of a section that has another name now.
struct RenamedKey {
  const char* section;
  const char* before;
  const char* now;
};

/// Reads the keys of one object of a config: each has a type and a range, and a key that no code
/// reads is an error. Every message names the file and the whole key, as in "run.toml: optim.lr is
/// -1, expected 0 to 1". Without a default a key is required; null counts as missing. All
/// throw std::runtime_error.
class Fields {
 public:
  /// `prefix` is how the object is reached from the top of the source: "" or "optim".
  Fields(Json object, std::string source, std::string prefix = "");

  Index integer(const std::string& key, Bounds<Index> range = {},
                std::optional<Index> otherwise = {});
  /// Whole numbers are real ones too; what is not finite is refused.
  double real(const std::string& key, Bounds<double> range = {},
              std::optional<double> otherwise = {});
  bool boolean(const std::string& key, std::optional<bool> otherwise = {});
  std::string text(const std::string& key, std::optional<std::string> otherwise = {});
  /// One of a few words.
  std::string choice(const std::string& key, const std::vector<std::string>& words,
                     std::optional<std::string> otherwise = {});
  std::vector<Index> integers(const std::string& key, Bounds<Index> range = {},
                              std::optional<std::vector<Index>> otherwise = {});
  std::vector<double> reals(const std::string& key);
  std::vector<std::string> texts(const std::string& key,
                                 std::optional<std::vector<std::string>> otherwise = {});
  /// The object under a key; an empty one if it is not there.
  Fields object(const std::string& key);

  /// Whether the key is there and not null. Counts as reading it.
  bool has(const std::string& key);
  /// Whether the key exists, even if its value is null.
  bool contains(const std::string& key);
  /// The value as it is, null if it is not there.
  const Json& value(const std::string& key);
  /// Keys that may be there and have no meaning here.
  void ignore(std::initializer_list<const char*> keys);
  void ignore(const std::vector<const char*>& keys);
  /// Keys that were not read.
  std::vector<std::string> unasked() const;
  /// Refuses a key of this object by its old name, with the new one.
  void refuse_renamed(std::span<const RenamedKey> keys) const;
  /// Refuses the first key that was not read, with the nearest one that was.
  void done() const;

  /// Refuses a key: "run.toml: optim.lr is -1, " and then the words.
  [[noreturn]] void fail(const std::string& key, const std::string& words) const;

 private:
  Fields(std::shared_ptr<const Json> object, std::string source, std::string prefix);
  const Json* find(const std::string& key);
  const Json& need(const std::string& key) const;
  std::string path_of(const std::string& key) const;
  Index integer_of(const Json& value, const std::string& key, Bounds<Index> range) const;

  std::shared_ptr<const Json> object_;  // part of what the constructor was given
  std::string source_, prefix_;
  std::set<std::string> known_;
};

}  // namespace rapt::detail
