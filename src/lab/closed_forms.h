#pragma once

#include "rapt/tensor.h"

namespace rapt::lab {

/// What softmax over n independent normal logits of deviation sigma gives on average, by
/// quadrature.
struct SoftmaxTheory {
  double log_sum = 0;          // mean ln Z
  double entropy = 0;          // mean, nats
  double collision = 0;        // mean sum of squared probabilities: 1 / effective number of keys
  double jacobian_square = 0;  // mean squared Frobenius norm of d probabilities / d logits
};
SoftmaxTheory softmax_theory(Index keys, double sigma);

/// The same for logits scale * q·k of standard normal q and k: sigma is scale |q|, and |q| varies.
SoftmaxTheory attention_theory(Index keys, Index dim, double scale);

/// Root mean square of the gradient of one query under standard normal values and upstream
/// gradients of `value_dim` numbers. Its small term, how far keys lie along the query, is taken for
/// soft logits.
double query_gradient_theory(Index keys, Index dim, Index value_dim, double scale);

/// Largest norm of the Jacobian's that a row of softmax over n keys can have when it is uniform.
double uniform_jacobian(Index keys);

}  // namespace rapt::lab
