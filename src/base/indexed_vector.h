#pragma once

#include <cassert>
#include <concepts>
#include <iterator>
#include <utility>
#include <vector>

#include "base/sizes.h"

namespace rapt::detail {

/// A std::vector whose sizes and subscripts may be signed, as Index is.
template <class T>
class IndexedVector : public std::vector<T> {
  using Base = std::vector<T>;

 public:
  using Base::Base;
  explicit IndexedVector(std::integral auto size) : Base(to_size(size)) {}
  IndexedVector(std::integral auto size, const T& value) : Base(to_size(size), value) {}
  IndexedVector(Base&& other) noexcept : Base(std::move(other)) {}
  explicit IndexedVector(const Base& other) : Base(other) {}

  typename Base::reference operator[](std::integral auto i) {
    assert(to_size(i) < Base::size());
    return Base::operator[](to_size(i));
  }
  typename Base::const_reference operator[](std::integral auto i) const {
    assert(to_size(i) < Base::size());
    return Base::operator[](to_size(i));
  }

  void reserve(std::integral auto size) { Base::reserve(to_size(size)); }
  void resize(std::integral auto size) { Base::resize(to_size(size)); }
  void resize(std::integral auto size, const T& value) { Base::resize(to_size(size), value); }
  using Base::assign;
  void assign(std::integral auto size, const T& value) { Base::assign(to_size(size), value); }
};

/// container[i] for what cannot be an IndexedVector: vectors of the public API, spans, arrays.
template <class Container>
constexpr decltype(auto) element(Container&& container, std::integral auto i) {
  assert(to_size(i) < std::size(container));
  return container[to_size(i)];
}

}  // namespace rapt::detail
