#pragma once

#include <vector>

#include "lab/lab.h"

// The figures that sections are put together from.
namespace rapt::lab {
using namespace detail;

/// How many values of bf16 a row of probabilities uses.
Figure resolution_figure(const Lab& lab);
/// Which part of the gradients of scores is too small for f16.
Figure underflow_figure(const Lab& lab);

/// The slopes of one row of softmax, and their norm over the spread of the scores.
Figure jacobian_figure(const Lab& lab);
Figure norm_figure(const Lab& lab);
/// Gradients of queries and of keys over d, median and root mean square.
std::vector<Figure> gradient_figures(const Lab& lab);
/// The same small model trained under different scales: loss, gradient norm, entropy.
std::vector<Figure> training_figures(const Lab& lab);

/// Entropy over the number of keys, with and without log n.
Figure length_entropy_figure(const Lab& lab);
/// Perplexity of models beyond the length of their training.
Figure extrapolation_figure(const Lab& lab);
/// How far back layers of windows reach.
Figure reach_figure(const Lab& lab);
/// What another order of the tokens changes under each positional scheme.
Figure permutation_figure(const Lab& lab);

}  // namespace rapt::lab
