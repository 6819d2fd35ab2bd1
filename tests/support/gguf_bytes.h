#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace rapt::test {

/// The bytes of a GGUF file, written part by part and wrong wherever one likes.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& number(T x) {
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof(T));
    return *this;
  }
  GgufBytes& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& text(const std::string& text) { return number<std::uint64_t>(text.size()).raw(text); }
  GgufBytes& begin(std::uint64_t tensors, std::uint64_t entries, std::uint32_t version = 3) {
    return raw("GGUF").number(version).number(tensors).number(entries);
  }
  template <class T>
  GgufBytes& entry(const std::string& key, std::uint32_t type, T value) {
    return text(key).number(type).number(value);
  }
  GgufBytes& text_entry(const std::string& key, const std::string& value) {
    return text(key).number<std::uint32_t>(8).text(value);
  }
  template <class T>
  GgufBytes& list_entry(const std::string& key, std::uint32_t item, const std::vector<T>& items) {
    text(key).number<std::uint32_t>(9).number(item).template number<std::uint64_t>(items.size());
    for (const T& x : items) number(x);
    return *this;
  }
  GgufBytes& texts_entry(const std::string& key, const std::vector<std::string>& items) {
    text(key).number<std::uint32_t>(9).number<std::uint32_t>(8).number<std::uint64_t>(items.size());
    for (const std::string& x : items) text(x);
    return *this;
  }
  /// Sizes as the file has them: the innermost first.
  GgufBytes& tensor(const std::string& name, const std::vector<std::uint64_t>& sizes,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).number(static_cast<std::uint32_t>(sizes.size()));
    for (const std::uint64_t size : sizes) number(size);
    return number(type).number(offset);
  }
  GgufBytes& pad(std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace rapt::test
