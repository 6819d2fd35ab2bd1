#pragma once

#include "rapt/tensor.h"

namespace rapt::detail {

struct QuantizedKernels;  // quantized_kernels.h

/// What forward computes of a row and backward needs again.
struct RowMoments {
  double mean;     // 0 of rms_norm
  double inverse;  // 1 / sqrt(variance + epsilon)
};

/// Contiguous rows to normalize.
struct NormRows {
  const float* x;
  const float* gain;   // [width]
  const float* shift;  // [width] or null
  Index rows, width;
  double epsilon;
  RowMoments* moments;  // [rows], written
  float* y;
};

/// The same rows in backward.
struct NormGradients {
  const float* x;
  const float* gain;
  Index rows, width;
  const RowMoments* moments;
  float* dy;      // becomes dx
  float* dgain;   // [width], added to
  float* dshift;  // the same, or null
};

/// The constants of one step of AdamW.
struct AdamStep {
  double keep;  // 1 - learning rate * weight decay
  double beta1, beta2;
  double size;          // learning rate / (1 - beta1^step)
  double inverse_root;  // 1 / sqrt(1 - beta2^step)
  double epsilon;
  double gradient_factor;  // of clipping
};

/// Inner loops of a network other than products, for one instruction set. Numbers are side by side
/// and need no alignment; nothing is read or written beyond the last.
struct NetworkKernels {
  // to += more, y = a + b, y = x factor
  void (*add)(float* to, const float* more, Index count) noexcept;
  void (*sum)(const float* a, const float* b, Index count, float* y) noexcept;
  void (*scale)(const float* x, float factor, Index count, float* y) noexcept;
  // to[c] += the sum of parts[i * stride + c], in f64 and in the order of i.
  void (*add_rows)(const float* parts, Index count, Index stride, Index width, float* to) noexcept;
  double (*sum_squares)(const float* x, Index count) noexcept;

  struct Norm {
    void (*forward)(const NormRows& rows) noexcept;
    void (*backward)(const NormGradients& rows) noexcept;
  };
  Norm layer_norm, rms_norm;

  // In the order of Activation. A row to gate is what passes through the function and then as many
  // factors.
  struct Activate {
    void (*forward)(const float* x, Index count, float* y) noexcept;
    void (*backward)(const float* x, Index count, float* dy) noexcept;  // dy becomes dx
    void (*gate)(const float* x, Index rows, Index width, float* y) noexcept;
    void (*gate_backward)(const float* x, const float* dy, Index rows, Index width,
                          float* dx) noexcept;
  };
  Activate activate[4];
  /// The normal distribution function.
  void (*normal_cdf)(const float* x, Index count, float* y) noexcept;

  // A row of logits: its largest number; its numbers to exp(x - shift), and their sum; x factor +
  // shift.
  float (*largest)(const float* x, Index count) noexcept;
  double (*row_sum)(const float* x, Index count) noexcept;
  double (*exponentials)(float* x, Index count, float shift) noexcept;
  void (*affine)(float* x, Index count, float factor, float shift) noexcept;

  void (*adam)(const AdamStep& step, const float* gradient, Index count, float* value, float* first,
               float* second) noexcept;

  /// Products with weights of 4 and 8 bits; the second for CPUs that also have AVX512-VNNI, null
  /// where the target has none. Both give the same bits.
  const QuantizedKernels* quantized;
  const QuantizedKernels* quantized_vnni;
};

}  // namespace rapt::detail
