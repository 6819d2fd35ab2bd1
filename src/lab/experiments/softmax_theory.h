#pragma once

#include "rapt/tensor.h"

namespace rapt::lab {
using namespace detail;

/// What softmax over n independent normal logits of deviation sigma gives on average, by
/// quadrature.
struct SoftmaxTheory {
  double log_sum = 0;          // mean ln Z
  double entropy = 0;          // mean, nats
  double collision = 0;        // mean sum of squared probabilities: 1 / effective number of keys
  double jacobian_square = 0;  // mean squared Frobenius norm of d probabilities / d logits
  double inverse_largest = 0;  // mean of 1 / largest probability
};
SoftmaxTheory softmax_theory(Index keys, double sigma);

/// The same for logits scale * q·k of standard normal q and k: sigma is scale |q|, and |q| varies.
SoftmaxTheory attention_theory(Index keys, Index dim, double scale);

/// Root mean square of the gradient of one query under standard normal values and upstream
/// gradients of `value_dim` elements. Its small term, the components of keys along the query, is
/// taken for soft logits.
double query_gradient_theory(Index keys, Index dim, Index value_dim, double scale);

/// The same for one key that `queries` queries attend to.
double key_gradient_theory(Index keys, Index queries, Index dim, Index value_dim, double scale);

/// Frobenius norm of the Jacobian where all keys are alike.
double uniform_jacobian(Index keys);
/// Its root mean square for normal logits of a deviation far beyond sqrt(2 ln keys), where few keys
/// compete.
double saturated_jacobian(Index keys, double sigma);

}  // namespace rapt::lab
