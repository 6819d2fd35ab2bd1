// Generation with a KV cache: read a prompt, decode one token at a time, then fork the sequence
// into two continuations that share its memory.
//
//   build/release/bin/example_cache_decode

#include <rapt/rapt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <random>

namespace {

using rapt::Index;

/// Takes the place of a model's projections: standard normal numbers.
rapt::Tensor random_tensor(const rapt::Shape& shape, unsigned seed) {
  rapt::Tensor tensor(shape);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (float& x : tensor.numbers()) x = normal(generator);
  return tensor;
}

/// Tokens first to first + count - 1 of a tensor [1, heads, tokens, dim]. Nothing is copied.
rapt::View slice(const rapt::View& x, Index first, Index count) {
  return rapt::View::unchecked(x.row(0, 0, first), {1, x.heads(), count, x.dim()}, x.strides());
}

}  // namespace

int main() {
  const Index heads = 8, kv_heads = 2, dim = 64, prompt = 1000, tokens = 1030;
  const rapt::Tensor q = random_tensor({1, heads, tokens, dim}, 1);
  const rapt::Tensor k = random_tensor({1, kv_heads, tokens, dim}, 2);
  const rapt::Tensor v = random_tensor({1, kv_heads, tokens, dim}, 3);
  const rapt::Attention how{.pattern = rapt::causal()};

  // The prompt in one call. {.type = rapt::CacheType::int8} takes a quarter of the memory,
  // {.window = 512, .pinned = 4} releases old tokens.
  rapt::KvCache cache({.kv_heads = kv_heads, .dim = dim});
  const rapt::KvCache::Sequence sequence = cache.add();
  cache.append(sequence, slice(k, 0, prompt), slice(v, 0, prompt));
  rapt::attend(slice(q, 0, prompt), cache, std::array{sequence}, how);
  std::cout << "prompt: " << cache.tokens(sequence) << " tokens in " << cache.pages() << " pages, "
            << cache.bytes() / 1024 << " KiB\n";

  // One token at a time. Queries are the newest positions, so no position is passed.
  const rapt::Attended whole = rapt::attend(q, k, v, how);  // all tokens at once, to compare
  float difference = 0;
  for (Index token = prompt; token < tokens; ++token) {
    cache.append(sequence, slice(k, token, 1), slice(v, token, 1));
    const rapt::Attended y = rapt::attend(slice(q, token, 1), cache, std::array{sequence}, how);
    for (Index head = 0; head < heads; ++head)
      for (Index i = 0; i < dim; ++i)
        difference = std::max(difference, std::abs(y.out.view().row(0, head, 0)[i] -
                                                   whole.out.view().row(0, head, token)[i]));
  }
  std::cout << "decoded " << tokens - prompt
            << " tokens; largest difference from one pass over all " << tokens << ": " << difference
            << '\n';

  // A fork shares all pages; writing to the last one copies that page only.
  const rapt::KvCache::Sequence fork = cache.fork(sequence);
  std::cout << "after the fork: " << cache.pages() << " pages; ";
  for (const rapt::KvCache::Sequence each : {sequence, fork}) {
    const unsigned seed = 4 + static_cast<unsigned>(each);  // each continues with another token
    cache.append(each, random_tensor({1, kv_heads, 1, dim}, seed),
                 random_tensor({1, kv_heads, 1, dim}, seed + 10));
  }
  const rapt::Tensor next = random_tensor({2, heads, 1, dim}, 9);
  const rapt::Attended both = rapt::attend(next, cache, std::array{sequence, fork}, how);
  std::cout << "after a token for each: " << cache.pages() << " pages; " << both.out.shape()[0]
            << " sequences attended in one call\n";
  return difference < 1e-5F ? 0 : 1;
}
