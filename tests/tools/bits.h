#pragma once

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "base/io/hash.h"
#include "rapt/attention.h"

// One hash over the bits of everything rapt computes. A change that is meant to move code and not
// numbers prints the same hashes before and after.
namespace rapt::test {
using namespace detail;

/// The bits of one section, in the order in which they are added.
class Bits {
 public:
  void add(std::span<const std::byte> bytes) { hasher_.add(bytes); }
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T number) { add(std::as_bytes(std::span(&number, 1))); }
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(const std::vector<T>& numbers) { add(std::as_bytes(std::span(numbers))); }
  void add(const std::string& text) { add(std::as_bytes(std::span(text))); }
  void add(const Tensor& tensor);
  void add(const Attended& attended);
  void add(const Gradients& gradients);

  std::string text() const { return hasher_.hash().text(); }

 private:
  Hasher hasher_;
};

/// What a section computes; with each context that the caller asks for, unless it is about text.
struct Section {
  std::string name;
  void (*compute)(Bits& bits, const Context& context);
  bool needs_context = true;
};

const std::vector<Section>& attention_sections();
const std::vector<Section>& position_sections();
const std::vector<Section>& model_sections();
const std::vector<Section>& text_sections();

}  // namespace rapt::test
