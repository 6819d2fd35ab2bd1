#pragma once

#include <memory>
#include <span>
#include <string>

#include "attention/forward_output.h"
#include "attention/request.h"

namespace rapt::detail {

struct Call;  // attention/call.h
struct Route;

/// A validated request and where its results go.
struct Job {
  Request request;
  ForwardOutput output;
  const Route* route = nullptr;  // chosen by dispatch()
};

/// One algorithm for attention.
struct Route {
  const char* name;
  const char* summary;  // for docs/internals/routes.md
  /// Null if this route takes the request, else the reason why it does not. What was found out is
  /// kept in the request.
  const char* (*why_not)(Request& request);
  /// Computes requests that all take this route. Whatever is refused is refused before anything is
  /// written.
  void (*run)(std::span<const Job> jobs);
  /// What run would do with this request: lines for `explain`.
  std::string (*describe)(const Request& request);
  /// Computes a part of a larger call that takes this route: the heads that its part names. Null:
  /// the route has no parts.
  void (*run_part)(const Call& part, const ForwardOutput& output) = nullptr;
};

/// All of them, in order of preference. The last one takes everything.
std::span<const Route> routes();

/// The first route that takes the request.
const Route& route_of(Request& request);

/// Name of the route that dispatch() ran last on this thread: tests compare it with `explain`.
inline thread_local const char* last_route = nullptr;

/// Computes every job by its own route, so that an item of a batch has the same bits in any batch.
void dispatch(std::span<Job> jobs);

struct BackwardTask;  // attention/backward/backward.h
class BackwardPass;
enum class Denominators;

/// One algorithm for the gradients of a call without an lsh leaf.
struct BackwardRoute {
  const char* name;
  /// Null if this route takes the request, else the reason why it does not.
  const char* (*why_not)(Request& request, const AnyView& dout);
  void (*run)(const BackwardTask& task, const GradientViews& to, Gradients& gradients);
  /// The same in passes over ranges of heads, for parts of larger calls.
  std::unique_ptr<BackwardPass> (*pass)(const Call& call);
  Denominators denominators;
};

/// The first route that takes the request.
const BackwardRoute& backward_route_of(Request request, const AnyView& dout);

}  // namespace rapt::detail
