#pragma once

#include <span>

#include "kernels/decode_kernels.h"
#include "kernels/lsh_kernels.h"
#include "kernels/matrix_kernels.h"
#include "kernels/page_kernels.h"
#include "kernels/peak_kernels.h"
#include "kernels/rope_kernels.h"
#include "kernels/score_kernels.h"
#include "kernels/tile_kernels.h"
#include "kernels/vector_kernels.h"

namespace rapt::detail {

struct Bf16Kernels;     // bf16_kernels.h
struct NetworkKernels;  // network_kernels.h

/// The inner loops for one instruction set: pointers and sizes only.
struct Kernels {
  const char* name;
  Index lanes;
  VectorKernels vectors;
  TileKernels<float> tiles;
  ScoreKernels score;
  PageKernels pages;
  DecodeKernels decode;
  MatrixKernels<float> matrix;
  WeightKernels weights;
  RopeKernels rope;
  LshKernels lsh;
  PeakKernels peak;
  /// The rest of a network: norms, activations, losses, the optimizer.
  const NetworkKernels* network;
  /// What multiplies bf16 operands as they are; only if has_bf16().
  const Bf16Kernels* bf16 = nullptr;

  bool has_bf16() const { return bf16 != nullptr; }
};

/// Best first; "scalar" runs everywhere.
std::span<const Kernels* const> supported_kernels();

}  // namespace rapt::detail
