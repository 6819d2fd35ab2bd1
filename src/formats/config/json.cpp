#include "formats/config/json.h"

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "base/io/check_input.h"
#include "base/io/files.h"

namespace rapt::detail {
namespace {

/// Letters of a text that tell a third party how far the reading has come.
class CountedLetters {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountedLetters(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountedLetters& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const CountedLetters& other) const { return at_ == other.at_; }
  bool operator!=(const CountedLetters& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// From nlohmann's events to ours, with the limits.
class Adapter : public nlohmann::json_sax<Json> {
 public:
  Adapter(JsonEvents& events, const JsonLimits& limits) : events_(events), limits_(limits) {}

  bool null() override { return pass(nullptr); }
  bool boolean(bool value) override { return pass(value); }
  bool number_integer(number_integer_t value) override { return pass(value); }
  bool number_unsigned(number_unsigned_t value) override { return pass(value); }
  bool number_float(number_float_t value, const string_t&) override { return pass(value); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool string(string_t& value) override {
    check_string(value);
    return pass(std::move(value));
  }
  bool key(string_t& name) override {
    check_string(name);
    events_.key(std::move(name));
    return true;
  }
  bool start_object(std::size_t) override {
    enter();
    events_.open_object();
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    events_.open_array();
    return true;
  }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    const std::string text = error.what();
    // "[json.exception...] parse error at line 1, column 7: syntax error ...": we say where it is
    // ourselves.
    const std::size_t place = text.find("column ");
    const std::size_t colon = text.find(": ", place == std::string::npos ? 0 : place);
    problem_ = colon == std::string::npos ? text : text.substr(colon + 2);
    // The bytes that were read last may be anything, and as many as there are.
    const std::string_view quote = "last read: '";
    const std::size_t begin = problem_.find(quote);
    if (begin == std::string::npos) return false;
    const std::size_t expected = problem_.rfind("'; expected ");
    const std::size_t end = expected == std::string::npos ? problem_.rfind('\'') : expected;
    const std::string bytes = problem_.substr(begin + quote.size(), end - begin - quote.size());
    problem_.replace(begin + quote.size() - 1, end + 2 - begin - quote.size(),
                     printable(bytes).text());
    return false;
  }
  /// What a text that was not read to its end gets wrong.
  const std::string& problem() const { return problem_; }

 private:
  bool pass(Json value) {
    events_.scalar(std::move(value));
    return true;
  }
  void check_string(const std::string& text) const {
    check_input(static_cast<Index>(text.size()) <= limits_.string_bytes, "a string of ",
                text.size(), " bytes, the limit is ", limits_.string_bytes);
  }
  void enter() { check_input(++depth_ <= limits_.depth, "nested deeper than ", limits_.depth); }
  bool leave() {
    --depth_;
    events_.close();
    return true;
  }

  JsonEvents& events_;
  const JsonLimits& limits_;
  Index depth_ = 0;
  std::string problem_;
};

/// Builds the value, and keeps an account of the memory it takes.
class Builder : public JsonEvents {
 public:
  explicit Builder(std::size_t text_bytes)
      : allowed_(3 * static_cast<Index>(text_bytes) + (Index{64} << 20)) {}

  void open_object() override { open(Json::object()); }
  void open_array() override { open(Json::array()); }
  void key(std::string name) override {
    Json& object = *open_.back();
    check_input(!object.contains(name), "key ", printable(name), " occurs twice");
    take(96 + static_cast<Index>(name.size()));
    key_ = std::move(name);
  }
  void scalar(Json value) override {
    if (value.is_string()) take(64 + static_cast<Index>(value.get_ref<std::string&>().size()));
    place(std::move(value));
  }
  void close() override { open_.pop_back(); }
  Json result() { return std::move(root_); }

 private:
  void open(Json value) {
    take(64);
    open_.push_back(&place(std::move(value)));
  }
  Json& place(Json value) {
    take(2 * Index{sizeof(Json)});  // the capacity of a growing array may be twice its size
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent.emplace(std::move(key_), std::move(value)).first.value();
    parent.push_back(std::move(value));
    return parent.back();
  }
  void take(Index bytes) {
    taken_ += bytes;
    check_input(taken_ <= allowed_, "its value takes more than ", allowed_, " bytes of memory");
  }

  Json root_;
  std::vector<Json*> open_;  // a parent grows only once its children are closed
  std::string key_;
  Index allowed_, taken_ = 0;
};

}  // namespace

void visit_json(std::string_view text, const std::string& source, JsonEvents& events,
                const JsonLimits& limits) {
  check_input(static_cast<Index>(text.size()) <= limits.bytes, source, ": JSON of ", text.size(),
              " bytes, the limit is ", limits.bytes);
  const char* reached = text.data();
  Adapter adapter(events, limits);
  const auto fail_here = [&](const char* problem) {
    fail_input(source, ": JSON at byte ", reached - text.data(), ": ", problem);
  };
  bool whole = false;
  try {
    whole = Json::sax_parse(CountedLetters(text.data(), &reached),
                            CountedLetters(text.data() + text.size(), &reached), &adapter);
  } catch (const std::runtime_error& error) {
    fail_here(error.what());
  }
  if (!whole) fail_here(adapter.problem().c_str());
}

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  Builder builder(text.size());
  visit_json(text, source, builder, limits);
  return builder.result();
}

Json read_json(const std::string& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.bytes), path, limits);
}

std::string Printable::text() const {
  constexpr std::size_t longest = 100;
  const bool cut = name.size() > longest;
  const std::string shown(name.substr(0, longest));
  const std::string safe = Json(shown).dump(-1, ' ', true, Json::error_handler_t::replace);
  return cut ? safe + "... (" + std::to_string(name.size()) + " bytes)" : safe;
}

}  // namespace rapt::detail
