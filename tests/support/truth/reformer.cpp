#include "support/truth/reformer.h"

#include <cmath>

#include "support/engine.h"

namespace rapt::test {
namespace {

constexpr std::size_t hidden = 16;

Doubles uniforms(TorchRandom& random, std::size_t count, std::size_t inputs) {
  const float bound = 1 / std::sqrt(static_cast<float>(inputs));
  Doubles numbers;
  for (std::size_t i = 0; i < count; ++i)
    numbers.push_back(random.uniform() * (bound + bound) - bound);
  return numbers;
}

Doubles gaussians(TorchRandom& random, std::size_t count, float deviation) {
  std::vector<float> numbers(count);
  random.normal(numbers);
  for (float& x : numbers) x *= deviation;
  return {numbers.begin(), numbers.end()};
}

constexpr float initializer_range = 0.02f;

Dense dense(TorchRandom& random, std::size_t out, std::size_t in, bool bias) {
  Dense made{.weight = uniforms(random, out * in, in), .in = in};
  if (bias) made.bias = uniforms(random, out, in);
  made.dweight.resize(out * in);
  return made;
}

void redraw(Dense& made, TorchRandom& random) {
  made.weight = gaussians(random, made.weight.size(), initializer_range);
  std::fill(made.bias.begin(), made.bias.end(), 0.0);
}

Doubles sum(Doubles a, const Doubles& b, double factor = 1) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

/// The other way round.
Doubles joined(const Tensor& y) {
  const Index tokens = y.shape()[2], dim = ReformerLayer::dim;
  Doubles x;
  for (Index t = 0; t < tokens; ++t)
    for (Index c = 0; c < ReformerLayer::hidden; ++c)
      x.push_back(static_cast<double>(y.data()[((c / dim) * tokens + t) * dim + c % dim]));
  return x;
}

double gelu(double z) { return z / 2 * (1 + std::erf(z / std::sqrt(2.0))); }
double gelu_slope(double z) {
  return (1 + std::erf(z / std::sqrt(2.0))) / 2 +
         z * std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0));
}

}  // namespace

Tensor split_heads(const Doubles& x) {
  const Index tokens = std::ssize(x) / ReformerLayer::hidden, dim = ReformerLayer::dim;
  Tensor y({1, ReformerLayer::heads, tokens, dim});
  for (Index t = 0; t < tokens; ++t)
    for (Index c = 0; c < ReformerLayer::hidden; ++c)
      at(y, 0, c / dim, t, c % dim) =
          static_cast<float>(x[static_cast<std::size_t>(t * ReformerLayer::hidden + c)]);
  return y;
}

Doubles Dense::operator()(const Doubles& x) const {
  const std::size_t out = weight.size() / in;
  Doubles y(x.size() / in * out);
  for (std::size_t r = 0; r < x.size() / in; ++r)
    for (std::size_t j = 0; j < out; ++j) {
      y[r * out + j] = bias.empty() ? 0 : bias[j];
      for (std::size_t c = 0; c < in; ++c) y[r * out + j] += x[r * in + c] * weight[j * in + c];
    }
  return y;
}

Doubles Dense::backward(const Doubles& dy, const Doubles& x) {
  const std::size_t out = weight.size() / in;
  Doubles dx(x.size());
  for (std::size_t r = 0; r < x.size() / in; ++r)
    for (std::size_t j = 0; j < out; ++j)
      for (std::size_t c = 0; c < in; ++c) {
        dx[r * in + c] += dy[r * out + j] * weight[j * in + c];
        dweight[j * in + c] += dy[r * out + j] * x[r * in + c];
      }
  return dx;
}

Doubles normed(const Doubles& x, std::size_t width) {
  Doubles y(x.size());
  const auto count = static_cast<double>(width);
  for (std::size_t r = 0; r < x.size(); r += width) {
    double mean = 0, square = 0;
    for (std::size_t c = 0; c < width; ++c) mean += x[r + c] / count;
    for (std::size_t c = 0; c < width; ++c) square += (x[r + c] - mean) * (x[r + c] - mean) / count;
    for (std::size_t c = 0; c < width; ++c)
      y[r + c] = (x[r + c] - mean) / std::sqrt(square + 1e-12);
  }
  return y;
}

Doubles normed_backward(const Doubles& dy, const Doubles& x, std::size_t width) {
  const Doubles y = normed(x, width);
  const auto count = static_cast<double>(width);
  Doubles dx(x.size());
  for (std::size_t r = 0; r < x.size(); r += width) {
    double mean = 0, square = 0, dmean = 0, along = 0;
    for (std::size_t c = 0; c < width; ++c) mean += x[r + c] / count;
    for (std::size_t c = 0; c < width; ++c) {
      square += (x[r + c] - mean) * (x[r + c] - mean) / count;
      dmean += dy[r + c] / count;
      along += dy[r + c] * y[r + c] / count;
    }
    for (std::size_t c = 0; c < width; ++c)
      dx[r + c] = (dy[r + c] - dmean - y[r + c] * along) / std::sqrt(square + 1e-12);
  }
  return dx;
}

ReformerLayer::ReformerLayer(Kind kind, TorchRandom& random) : kind_(kind) {
  q = dense(random, 16, 16, false);
  if (kind == Kind::local) k = dense(random, 16, 16, false);
  v = dense(random, 16, 16, false);
  o = dense(random, 16, 16, false);
  inner = dense(random, 32, 16, true);
  outer = dense(random, 16, 32, true);
}

void ReformerLayer::draw(TorchRandom& random) {
  for (Dense* part : {&q, &k, &v, &o, &inner, &outer})
    if (!part->weight.empty()) redraw(*part, random);
}

Attention ReformerLayer::lsh_how(const ReformerConfig& config) const {
  Pattern pattern = lsh(config.lsh);
  if (config.causal) pattern = pattern & causal();
  if (real_.empty()) return {.pattern = pattern};
  std::vector<Index> seen;
  for (Index j = 0; j < std::ssize(real_); ++j)
    if (real_[static_cast<std::size_t>(j)] != 0) seen.push_back(j);
  return {.pattern = pattern & blocks(1, std::vector<std::vector<Index>>(real_.size(), seen))};
}

ReformerLocal ReformerLayer::local_how(const ReformerConfig& config) const {
  ReformerLocal how = config.local;
  how.causal = config.causal;
  how.attention_mask = real_;
  return how;
}

Doubles ReformerLayer::attention(const Doubles& x, const ReformerConfig& config) const {
  const Doubles ln = normed(x, hidden);
  const Tensor queries = split_heads(q(ln)), values = split_heads(v(ln));
  if (kind_ == Kind::local)
    return o(joined(attend_reformer_local(queries, split_heads(k(ln)), values, local_how(config),
                                          config.context)
                        .out));
  return o(joined(attend(queries, queries, values, lsh_how(config), config.context).out));
}

Doubles ReformerLayer::attention_backward(const Doubles& dy, const Doubles& x,
                                          const ReformerConfig& config) {
  const Doubles ln = normed(x, hidden);
  const Tensor queries = split_heads(q(ln)), values = split_heads(v(ln));
  if (kind_ == Kind::local) {
    const ReformerLocal how = local_how(config);
    const Tensor keys = split_heads(k(ln));
    const Attended y = attend_reformer_local(queries, keys, values, how, config.context);
    const Tensor dout = split_heads(o.backward(dy, joined(y.out)));
    const Gradients g =
        attend_reformer_local_backward(dout, queries, keys, values, y, how, config.context);
    const Doubles dln = sum(q.backward(joined(g.dq), ln),
                            sum(k.backward(joined(g.dk), ln), v.backward(joined(g.dv), ln)));
    return normed_backward(dln, x, hidden);
  }
  const Attention how = lsh_how(config);
  const Attended y = attend(queries, queries, values, how, config.context);
  const Tensor dout = split_heads(o.backward(dy, joined(y.out)));
  const Gradients g = attend_backward(dout, queries, queries, values, y, how, config.context);
  const Doubles dln =
      sum(q.backward(sum(joined(g.dq), joined(g.dk)), ln), v.backward(joined(g.dv), ln));
  return normed_backward(dln, x, hidden);
}

Doubles ReformerLayer::feed_forward(const Doubles& x) const {
  Doubles z = inner(normed(x, hidden));
  for (double& number : z) number = gelu(number);
  return outer(z);
}

Doubles ReformerLayer::feed_forward_backward(const Doubles& dy, const Doubles& x) {
  const Doubles ln = normed(x, hidden), z = inner(ln);
  Doubles active = z;
  for (double& number : active) number = gelu(number);
  Doubles dz = outer.backward(dy, active);
  for (std::size_t i = 0; i < dz.size(); ++i) dz[i] *= gelu_slope(z[i]);
  return normed_backward(inner.backward(dz, ln), x, hidden);
}

ReformerLayer::Streams ReformerLayer::forward(const Streams& x, const ReformerConfig& config,
                                              const std::vector<std::uint8_t>& real) {
  real_ = real;
  const Doubles y1 = sum(x.x1, attention(x.x2, config));
  return {y1, sum(x.x2, feed_forward(y1))};
}

ReformerLayer::Streams ReformerLayer::backward(const Streams& dy, Streams& y,
                                               const ReformerConfig& config) {
  const Doubles dy1 = sum(dy.x1, feed_forward_backward(dy.x2, y.x1));
  y.x2 = sum(y.x2, feed_forward(y.x1), -1);
  const Doubles dx2 = sum(dy.x2, attention_backward(dy1, y.x2, config));
  y.x1 = sum(y.x1, attention(y.x2, config), -1);
  return {dy1, dx2};
}

ReformerModel::ReformerModel(const std::vector<Kind>& kinds, bool with_head) {
  TorchRandom random(0);
  word_table = gaussians(random, 320 * hidden, 1);
  for (const Kind kind : kinds) layers.emplace_back(kind, random);
  word_table = gaussians(random, 320 * hidden, initializer_range);
  axial_rows = gaussians(random, 4 * 8, 1);
  axial_columns = gaussians(random, 8 * 8, 1);
  for (ReformerLayer& layer : layers) layer.draw(random);
  if (!with_head) return;
  head = dense(random, 320, 2 * hidden, false);
  redraw(head, random);
}

ReformerLayer::Streams ReformerModel::run(const std::vector<int>& ids, const ReformerConfig& config,
                                          const std::vector<std::uint8_t>& real) {
  Doubles x;
  for (std::size_t t = 0; t < ids.size(); ++t)
    for (std::size_t c = 0; c < hidden; ++c)
      x.push_back(word_table[static_cast<std::size_t>(ids[t]) * hidden + c] +
                  (c < 8 ? axial_rows[t / 8 * 8 + c] : axial_columns[t % 8 * 8 + c - 8]));
  ReformerLayer::Streams streams{x, x};
  for (ReformerLayer& layer : layers) streams = layer.forward(streams, config, real);
  return streams;
}

namespace {

Doubles side_by_side(const ReformerLayer::Streams& s) {
  Doubles both;
  for (std::size_t i = 0; i < s.x1.size(); i += hidden) {
    both.insert(both.end(), s.x1.begin() + i, s.x1.begin() + i + hidden);
    both.insert(both.end(), s.x2.begin() + i, s.x2.begin() + i + hidden);
  }
  return both;
}

ReformerLayer::Streams taken_apart(const Doubles& both) {
  ReformerLayer::Streams s;
  for (std::size_t i = 0; i < both.size(); ++i)
    (i / hidden % 2 == 0 ? s.x1 : s.x2).push_back(both[i]);
  return s;
}

}  // namespace

Doubles ReformerModel::last_hidden(const std::vector<int>& ids, const ReformerConfig& config,
                                   const std::vector<std::uint8_t>& real) {
  return normed(side_by_side(run(ids, config, real)), 2 * hidden);
}

Doubles ReformerModel::logits(const std::vector<int>& ids, const ReformerConfig& config,
                              const std::vector<std::uint8_t>& real) {
  return head(last_hidden(ids, config, real));
}

ReformerModel::Loss ReformerModel::loss(const std::vector<std::vector<int>>& sequences,
                                        const ReformerConfig& config) {
  Loss loss{.dwords = Doubles(word_table.size())};
  for (const std::vector<int>& ids : sequences) {
    ReformerLayer::Streams streams = run(ids, config, {});
    const Doubles both = side_by_side(streams), ln = normed(both, 2 * hidden);
    Doubles z = head(ln);
    const auto count = static_cast<double>(sequences.size() * (ids.size() - 1));
    for (std::size_t t = 0; t < ids.size(); ++t) {
      double* row = z.data() + t * words;
      const bool last = t + 1 == ids.size();
      double total = 0;
      for (Index w = 0; w < words; ++w) total += std::exp(row[w]);
      if (!last) loss.value += (std::log(total) - row[ids[t + 1]]) / count;
      for (Index w = 0; w < words; ++w)
        row[w] = last ? 0 : (std::exp(row[w]) / total - (w == ids[t + 1] ? 1 : 0)) / count;
    }
    ReformerLayer::Streams d = taken_apart(normed_backward(head.backward(z, ln), both, 2 * hidden));
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
      d = layer->backward(d, streams, config);
    for (std::size_t i = 0; i < d.x1.size(); ++i)
      loss.dwords[static_cast<std::size_t>(ids[i / hidden]) * hidden + i % hidden] +=
          d.x1[i] + d.x2[i];
  }
  return loss;
}

}  // namespace rapt::test
