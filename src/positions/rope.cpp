#include "rapt/rope.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/flush_denormals.h"
#include "base/views.h"
#include "positions/rope_angles.h"
#include "positions/rope_rotation.h"
#include "positions/rope_rows.h"

namespace rapt {
using namespace detail;
namespace {

/// Whose scale a table carries; only xPos tells them apart.
enum class Side { both, queries, keys };

/// Logarithm of xPos's growth per position of every pair.
std::vector<double> xpos_growth(const RopeOptions& options, Side side) {
  std::vector<double> growth;
  if (!options.xpos || side == Side::both) return growth;
  const auto channels = static_cast<double>(paired_channels(options));
  for (Index i = 0; i < paired_channels(options) / 2; ++i) {
    const double zeta = (2 * static_cast<double>(i) + 0.4 * channels) / (1.4 * channels);
    const double step = std::log(zeta) / options.xpos->scale_base;
    growth.push_back(side == Side::queries ? step : -step);
  }
  return growth;
}

}  // namespace

/// A rope at one length, for one side. Its family outlives it: ropes hold both.
struct Rope::Impl {
  Impl(const RopeOptions& options_, const std::vector<Index>& axes_, Index length_, Side side_)
      : options(options_),
        axes(axes_),
        length(length_),
        side(side_),
        angles(rope_angles(options_, length_)),
        table({angles.frequencies, xpos_growth(options_, side_),
               options_.xpos ? options_.xpos->center : 0, angles.attention_factor}) {}

  const RopeOptions& options;
  const std::vector<Index>& axes;  // of positions, for each pair
  const Index length;              // a length_class
  const Side side;
  const RopeAngles angles;
  const RopeTable table;
};

/// What all lengths and sides of a rope have in common, and the tables made last, so that asking
/// for a length again does not compute its tables again.
struct Rope::Family {
  explicit Family(const RopeOptions& options_)
      : options((check_rope_options(options_), options_)), axes(axis_of_pairs(options_)) {}

  std::shared_ptr<const Impl> impl_for(Index length, Side side) {
    const std::lock_guard lock(mutex);
    for (const auto& impl : recent)
      if (impl->length == length && impl->side == side) return impl;
    constexpr std::size_t most = 4;  // short and long, queries and keys
    if (recent.size() == most) recent.erase(recent.begin());
    return recent.emplace_back(std::make_shared<const Impl>(options, axes, length, side));
  }

  const RopeOptions options;
  const std::vector<Index> axes;
  std::mutex mutex;
  std::vector<std::shared_ptr<const Impl>> recent;
};

Rope::Rope(const RopeOptions& options) : family_(std::make_shared<Family>(options)) {
  impl_ = family_->impl_for(length_class(options, 0), Side::both);
}
Rope::Rope(std::shared_ptr<Family> family, std::shared_ptr<const Impl> impl)
    : family_(std::move(family)), impl_(std::move(impl)) {}

const RopeOptions& Rope::options() const { return family_->options; }
std::span<const double> Rope::frequencies() const { return impl_->angles.frequencies; }
double Rope::attention_factor() const { return impl_->angles.attention_factor; }

CacheRule Rope::cache_rule() const {
  using Keys = CacheRule::Keys;
  using Renumbering = CacheRule::Renumbering;
  if (std::holds_alternative<DynamicNtkRope>(options().scaling))
    return {Keys::unrotated, Renumbering::by_rotating_again};
  if (std::holds_alternative<LongRope>(options().scaling))
    return {Keys::rotated_if_fixed, Renumbering::by_rotation};
  return {Keys::rotated, Renumbering::by_rotation};
}

Rope Rope::for_length(Index tokens) const {
  check(tokens >= 0, "rope: a length of ", tokens, " tokens given, expected 0 or more");
  return {family_, family_->impl_for(length_class(options(), tokens), impl_->side)};
}

Rope Rope::for_queries() const {
  return options().xpos ? Rope(family_, family_->impl_for(impl_->length, Side::queries)) : *this;
}

Rope Rope::for_keys() const {
  return options().xpos ? Rope(family_, family_->impl_for(impl_->length, Side::keys)) : *this;
}

namespace {

/// Where a call writes and what it reads; the same memory or none in common.
struct RopeOperands {
  const char* where;
  AnyMutableView out;
  AnyView in;
  bool in_place;
};

void check_operands(const RopeOperands& o, const RopeOptions& options, Side side) {
  check(!options.xpos || side != Side::both, o.where,
        ": xPos scales queries and keys differently, expected a rope made by for_queries() or "
        "for_keys()");
  check_readable(o.where, "x", o.in);
  check(o.in.dim() == options.dim, o.where, ": x has dim ", o.in.dim(), ", expected the rope's ",
        options.dim);
  check_output(o.where, o.in_place ? "x" : "out", o.out, o.in.shape());
  if (!o.in_place) check_apart(o.where, o.out, o.in, "x");
}

/// xPos grows without end, f32 does not.
void check_growth(const char* where, const PairRotations& rotations, const TokenPositions& at) {
  constexpr double most = 80;  // e^80 is near the end of f32
  for (const Index position : {at.lowest(), at.highest()})
    for (const double step : rotations.growth)
      check(std::abs(step * static_cast<double>(position - rotations.center)) <= most, where,
            ": position ", position, " is too far from xPos's center ", rotations.center,
            " for f32, expected a center near the positions in use");
}

void check_axes(const char* where, Index given, Index sections) {
  check(given == 1 || given == sections, where, ": positions on ", given,
        " axes given, expected 1 or one for each of the rope's ", sections, " sections");
}

void run(const Rope::Impl& impl, const RopeOperands& o, RotaryDirection direction,
         const Positions& positions, const Context& context) {
  const FlushDenormals guard;  // whatever the caller rounds like, rapt rounds to nearest
  check_operands(o, impl.options, impl.side);
  const TokenGrid grid{o.in.batch(), o.in.tokens()};
  const TokenPositions at(o.where, positions, grid);
  check_axes(o.where, at.axes(), static_cast<Index>(impl.options.sections.pairs.size()));
  check_growth(o.where, impl.table.rotations(), at);
  if (o.in.shape().elements() == 0) return;
  RopeRows rows(impl.table, impl.axes, at, grid, context);
  rotate(
      {o.out, o.in, impl.table.pairs(), impl.options.layout, direction},
      [&](Index item, Index first, Index count, Index worker, const float** cos_sin) {
        rows.load(item, first, count, worker, cos_sin);
      },
      context);
}

}  // namespace

void Rope::apply(AnyMutableView x, const Positions& positions, const Context& context) const {
  run(*impl_, {"rope", x, x, true}, RotaryDirection::forward, positions, context);
}

void Rope::apply_into(AnyMutableView out, AnyView x, const Positions& positions,
                      const Context& context) const {
  run(*impl_, {"rope", out, x, false}, RotaryDirection::forward, positions, context);
}

void Rope::apply_backward(AnyMutableView dx, const Positions& positions,
                          const Context& context) const {
  run(*impl_, {"rope backward", dx, dx, true}, RotaryDirection::backward, positions, context);
}

void Rope::apply_backward_into(AnyMutableView dx, AnyView dout, const Positions& positions,
                               const Context& context) const {
  run(*impl_, {"rope backward", dx, dout, false}, RotaryDirection::backward, positions, context);
}

void Rope::shift(AnyMutableView keys, Index distance, const Context& context) const {
  const FlushDenormals guard;
  check(cache_rule().renumbering == CacheRule::Renumbering::by_rotation,
        "rope shift: dynamic NTK rotates all keys again when the length changes, expected a rope "
        "whose "
        "rotated keys can be rotated further");
  check_operands({"rope shift", keys, keys, true}, options(), impl_->side);
  const TokenPositions at("rope shift", distance, {1, 1});
  PairRotations rotations = impl_->table.rotations();
  rotations.center = 0;
  rotations.factor = 1;
  check_growth("rope shift", rotations, at);
  if (keys.shape().elements() == 0) return;
  Buffer<float> row(2 * rotations.pairs());
  rotations.write_row(distance, row.data());
  rotate(
      {keys, keys, rotations.pairs(), options().layout, RotaryDirection::forward},
      [&](Index, Index, Index count, Index, const float** rows) {
        std::fill(rows, rows + count, row.data());
      },
      context);
}

}  // namespace rapt
