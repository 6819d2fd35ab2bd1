#include "formats/config/fields.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

#include "base/io/check_input.h"

namespace rapt::detail {
namespace {

/// A value in a message: short, and safe to print.
std::string shown(const Json& value) {
  if (value.is_string()) return printable(value.get_ref<const std::string&>()).text();
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  if (value.is_number_float() && !std::isfinite(value.get<double>()))  // JSON has no such value
    return std::isnan(value.get<double>()) ? "nan" : value.get<double>() > 0 ? "inf" : "-inf";
  return value.dump();
}

/// How many letters have to be inserted, removed or changed.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = corner + (a[i] == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, corner + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// The nearest of the names; empty if none is near. A name that begins the word, or that the word
/// begins, is nearer than any other: lr_rate means lr.
std::string nearest(const std::string& word, const std::set<std::string>& names) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const bool begins = name.size() > 1 && (word.starts_with(name) || name.starts_with(word));
    const std::size_t far = begins ? 1 : distance(word.substr(0, 100), name);
    if (far < least) best = name, least = far;
  }
  return best;
}

template <class T>
std::string words_of(Bounds<T> range) {
  constexpr Bounds<T> any;
  std::ostringstream words;
  if (range.lowest == any.lowest && range.highest == any.highest)
    words << "a number";
  else if (range.highest == any.highest)
    words << "at least " << range.lowest;
  else if (range.lowest == any.lowest)
    words << "at most " << range.highest;
  else
    words << range.lowest << " to " << range.highest;
  return words.str();
}

}  // namespace

Fields::Fields(Json object, std::string source, std::string prefix)
    : Fields(std::make_shared<const Json>(std::move(object)), std::move(source),
             std::move(prefix)) {}

Fields::Fields(std::shared_ptr<const Json> object, std::string source, std::string prefix)
    : object_(std::move(object)), source_(std::move(source)), prefix_(std::move(prefix)) {
  check_input(object_->is_object(), source_, ": ", prefix_.empty() ? "the whole" : prefix_, " is ",
              shown(*object_), ", expected an object");
}

std::string Fields::path_of(const std::string& key) const {
  return prefix_.empty() ? key : prefix_ + "." + key;
}

const Json* Fields::find(const std::string& key) {
  known_.insert(key);
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::need(const std::string& key) const {
  const auto found = object_->find(key);
  check_input(found != object_->end() && !found->is_null(), source_, ": ", path_of(key),
              " is missing");
  return *found;
}

void Fields::fail(const std::string& key, const std::string& words) const {
  const auto found = object_->find(key);
  fail_input(source_, ": ", path_of(key), " is ",
             found == object_->end() ? "missing" : shown(*found), ", ", words);
}

Index Fields::integer_of(const Json& value, const std::string& key, Bounds<Index> range) const {
  const bool fits = value.is_number_unsigned() ? std::in_range<Index>(value.get<std::uint64_t>())
                                               : value.is_number_integer();
  if (!fits) fail(key, "expected a whole number");
  const Index number = value.get<Index>();
  if (number < range.lowest || number > range.highest) fail(key, "expected " + words_of(range));
  return number;
}

Index Fields::integer(const std::string& key, Bounds<Index> range, std::optional<Index> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  return integer_of(need(key), key, range);
}

double Fields::real(const std::string& key, Bounds<double> range, std::optional<double> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  const Json& value = need(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "expected a number");
  const double number = value.get<double>();
  if (number < range.lowest || number > range.highest) fail(key, "expected " + words_of(range));
  return number;
}

bool Fields::boolean(const std::string& key, std::optional<bool> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  const Json& value = need(key);
  if (!value.is_boolean()) fail(key, "expected true or false");
  return value.get<bool>();
}

std::string Fields::text(const std::string& key, std::optional<std::string> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  const Json& value = need(key);
  if (!value.is_string()) fail(key, "expected text");
  return value.get<std::string>();
}

std::string Fields::choice(const std::string& key, const std::vector<std::string>& words,
                           std::optional<std::string> otherwise) {
  const std::string word = text(key, std::move(otherwise));
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  std::string expected = "expected ";
  for (std::size_t i = 0; i < words.size(); ++i)
    expected += (i == 0 ? "" : i + 1 < words.size() ? ", " : " or ") + words[i];
  fail(key, expected);
}

std::vector<Index> Fields::integers(const std::string& key, Bounds<Index> range,
                                    std::optional<std::vector<Index>> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  const Json& value = need(key);
  if (!value.is_array()) fail(key, "expected a list of whole numbers");
  std::vector<Index> numbers;
  for (const Json& number : value) numbers.push_back(integer_of(number, key, range));
  return numbers;
}

std::vector<double> Fields::reals(const std::string& key) {
  const Json& value = need(key);
  const bool good = value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& v) {
                      return v.is_number() && std::isfinite(v.get<double>());
                    });
  if (!good) fail(key, "expected a list of numbers");
  return value.get<std::vector<double>>();
}

std::vector<std::string> Fields::texts(const std::string& key,
                                       std::optional<std::vector<std::string>> otherwise) {
  if (!find(key) && otherwise) return *otherwise;
  const Json& value = need(key);
  const bool good = value.is_array() && std::all_of(value.begin(), value.end(),
                                                    [](const Json& v) { return v.is_string(); });
  if (!good) fail(key, "expected a list of texts");
  return value.get<std::vector<std::string>>();
}

Fields Fields::object(const std::string& key) {
  const Json* found = find(key);
  if (!found) return Fields(Json::object(), source_, path_of(key));
  return Fields(std::shared_ptr<const Json>(object_, found), source_, path_of(key));
}

bool Fields::has(const std::string& key) { return find(key) != nullptr; }

bool Fields::contains(const std::string& key) {
  known_.insert(key);
  return object_->contains(key);
}

const Json& Fields::value(const std::string& key) {
  static const Json nothing;
  const Json* found = find(key);
  return found ? *found : nothing;
}

void Fields::ignore(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
}

void Fields::ignore(const std::vector<const char*>& keys) {
  known_.insert(keys.begin(), keys.end());
}

std::vector<std::string> Fields::unasked() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_->items())
    if (!known_.contains(key)) keys.push_back(key);
  return keys;
}

void Fields::refuse_renamed(std::span<const RenamedKey> keys) const {
  for (const RenamedKey& key : keys)
    check_input(prefix_ != key.section || !object_->contains(key.before), source_, ": the key `",
                path_of(key.before), "` is called `", path_of(key.now), "` now");
}

void Fields::done() const {
  for (const auto& [key, value] : object_->items()) {
    if (known_.contains(key)) continue;
    const std::string near = nearest(key, known_);
    const std::string shown_key = printable(key).text();
    fail_input(source_, ": unknown key `", path_of(shown_key.substr(1, shown_key.size() - 2)), "`",
               near.empty() ? "" : ", did you mean `" + path_of(near) + "`?");
  }
}

}  // namespace rapt::detail
