#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <shared_mutex>

#include "python/src/bind/bind.h"
#include "python/src/convert/attended_tuple.h"
#include "python/src/convert/call_options.h"
#include "python/src/convert/errors.h"
#include "rapt/kv_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

/// A cache that Python threads may share: the GIL is off while it works, so readers and writers
/// keep each other out here.
class SharedCache {
 public:
  SharedCache(const CacheOptions& options, const Context& context) : cache_(options, context) {}

  template <class Change>
  auto change(const Change& change) {
    const nb::gil_scoped_release release;
    const std::unique_lock lock(mutex_);
    return change(cache_);
  }
  template <class Look>
  auto look(const Look& look) const {
    const nb::gil_scoped_release release;
    const std::shared_lock lock(mutex_);
    return look(cache_);
  }

 private:
  KvCache cache_;
  mutable std::shared_mutex mutex_;
};

/// The leaf of a pattern; rotations are read through `array`, which outlives the answer.
CacheLsh hashing(nb::handle pattern, std::optional<Index> tokens, nb::handle rotations,
                 std::optional<Array>& array) {
  const std::optional<Lsh> leaf = lsh_part(pattern_of(pattern));
  if (!leaf) wrong_value("KvCache: lsh is a pattern without an lsh leaf, expected rapt.lsh(...)");
  CacheLsh lsh{.lsh = *leaf, .tokens = tokens};
  if (!rotations.is_none())
    lsh.rotations = array.emplace(rotations, "KvCache: rotations").floats(4);
  return lsh;
}

void make_cache(SharedCache* self, Index kv_heads, Index dim, std::optional<Index> value_dim,
                const std::string& type, std::optional<Index> window, Index pinned,
                nb::object context, nb::object lsh, std::optional<Index> lsh_tokens,
                nb::object rotations) {
  CacheOptions options{.kv_heads = kv_heads,
                       .dim = dim,
                       .value_dim = value_dim,
                       .type = from_string<CacheType>(type),
                       .window = window,
                       .pinned = pinned};
  std::optional<Array> array;
  if (!lsh.is_none())
    options.lsh = hashing(lsh, lsh_tokens, rotations, array);
  else if (!rotations.is_none())
    wrong_value("KvCache: rotations without lsh are given, expected both or neither");
  new (self) SharedCache(options, context_of(context));
}

void append(SharedCache& self, Index sequence, nb::handle k, nb::handle v, nb::handle layout_name) {
  Array arrays[] = {{k, "KvCache: k"}, {v, "KvCache: v"}};
  const Layout layout = layout_of(layout_name);
  const AnyView keys = laid_out(arrays[0].operand(), layout);
  const AnyView values = laid_out(arrays[1].operand(), layout);
  self.change([&](KvCache& cache) { cache.append(sequence, keys, values); });
}

/// Attention over a cache runs in the cache's own context.
void refuse_context(const char* where, const nb::tuple& options) {
  if (!options[options.size() - 1].is_none())
    wrong_value(where,
                ": a context is given, expected none: attention over a cache runs in the "
                "cache's, KvCache(..., context=)");
}

nb::object attend_cache(const SharedCache& self, nb::handle q, nb::handle sequences,
                        nb::tuple options, nb::handle layout_name, int wanted) {
  Array queries(q, "attend: q");
  const Layout layout = layout_of(layout_name);
  const AnyView view = laid_out(queries.operand(), layout);
  const std::vector<Index> numbers = indices_of(sequences, "attend: sequences");
  CallOptions how(options);
  how.attention().stats = (wanted & want_stats) != 0;
  refuse_context("attend", options);
  Attended attended = self.look(
      [&](const KvCache& cache) { return attend(view, cache, numbers, how.attention()); });
  const ResultArray answer(queries);
  nb::object out = answer.array(std::move(attended.out), layout);
  return attended_tuple(answer, std::move(out), std::move(attended), wanted);
}

/// Over sequences, or over those that would have a number of tokens.
std::string explain_cache(const SharedCache& self, const std::vector<Index>& q,
                          nb::handle sequences, nb::tuple options, const std::string& type) {
  const CallOptions how(options);
  refuse_context("explain", options);
  const Shape shape = shape_of(q, "q");
  Index tokens = 0;
  if (nb::try_cast(sequences, tokens)) {
    return self.look([&](const KvCache& cache) {
      return explain(shape, cache.options(), tokens, how.attention(), from_string<Type>(type),
                     cache.context());
    });
  }
  const std::vector<Index> numbers = indices_of(sequences, "explain: sequences");
  return self.look([&](const KvCache& cache) {
    return explain(shape, cache, numbers, how.attention(), from_string<Type>(type));
  });
}

Index count(const SharedCache& self, Index (KvCache::*what)() const) {
  return self.look([&](const KvCache& cache) { return (cache.*what)(); });
}

std::string repr(const SharedCache& self) {
  const CacheOptions o = self.look([](const KvCache& cache) { return cache.options(); });
  return "KvCache(kv_heads=" + std::to_string(o.kv_heads) + ", dim=" + std::to_string(o.dim) +
         ", value_dim=" + std::to_string(o.filled_value_dim()) + ", type=\"" + to_string(o.type) +
         "\", window=" + (o.window ? std::to_string(*o.window) : "None") +
         ", pinned=" + std::to_string(o.pinned) +
         (o.lsh ? ", lsh=\"" + to_string(lsh(o.lsh->lsh)) + "\"" : "") +
         "): " + std::to_string(count(self, &KvCache::pages)) + " pages";
}

}  // namespace

void bind_cache(nb::module_& module) {
  nb::class_<SharedCache>(module, "KvCache",
                          "Keys and values of growing sequences, in pages of 64 tokens.")
      .def("__init__", &make_cache, "kv_heads"_a, "dim"_a, "value_dim"_a = nb::none(),
           "type"_a = "f32", "window"_a = nb::none(), "pinned"_a = 0, "context"_a = nb::none(),
           "lsh"_a = nb::none(), "lsh_tokens"_a = nb::none(), "rotations"_a = nb::none())
      .def(
          "add", [](SharedCache& self) { return self.change([](KvCache& c) { return c.add(); }); },
          "A new, empty sequence; returns its number.")
      .def(
          "fork",
          [](SharedCache& self, Index sequence) {
            return self.change([&](KvCache& c) { return c.fork(sequence); });
          },
          "sequence"_a, "A new sequence with the tokens of another, at the price of a page table.")
      .def(
          "remove",
          [](SharedCache& self, Index sequence) {
            self.change([&](KvCache& c) { c.remove(sequence); });
          },
          "sequence"_a)
      .def("append", &append, "sequence"_a, "k"_a.none(), "v"_a.none(), "layout"_a.none() = "bhld",
           "Adds tokens: k [1, kv_heads, tokens, dim], v [1, kv_heads, tokens, value_dim].")
      .def(
          "append_padding",
          [](SharedCache& self, Index sequence, Index tokens) {
            self.change([&](KvCache& c) { c.append_padding(sequence, tokens); });
          },
          "sequence"_a, "tokens"_a, "Hashed caches: adds positions that no query sees.")
      .def(
          "truncate",
          [](SharedCache& self, Index sequence, Index tokens) {
            self.change([&](KvCache& c) { c.truncate(sequence, tokens); });
          },
          "sequence"_a, "tokens"_a, "Forgets all but the first tokens.")
      .def(
          "tokens",
          [](const SharedCache& self, Index sequence) {
            return self.look([&](const KvCache& c) { return c.tokens(sequence); });
          },
          "sequence"_a, "Tokens appended so far.")
      .def_prop_ro(
          "pages", [](const SharedCache& self) { return count(self, &KvCache::pages); },
          "Pages in use, shared ones counted once.")
      .def_prop_ro(
          "bytes", [](const SharedCache& self) { return count(self, &KvCache::bytes); },
          "Memory of the pages.")
      .def("_explain", &explain_cache, "q"_a, "sequences"_a.none(), "how"_a, "type"_a)
      .def("_attend", &attend_cache, "q"_a.none(), "sequences"_a.none(), "how"_a, "layout"_a,
           "wanted"_a)
      .def("__repr__", &repr);
}

}  // namespace rapt::python
