#pragma once

#include <functional>
#include <vector>

#include "rapt/attention.h"
#include "rapt/longformer.h"
#include "rapt/nn/tape.h"
#include "rapt/rope.h"

namespace rapt {

// Attention as an operation on a tape: tokens are rows, heads are neighbouring columns.

/// How the rows and columns of a variable are tokens of heads.
struct HeadShape {
  Index items = 1;  // sequences of equal length, stored contiguously
  Index heads = 1;
  Index dim = 64;
};

/// Heads inside a variable [items * tokens, width]: head h is the columns from first + h * dim on.
struct HeadColumns {
  Variable of;
  Index first = 0;
};

/// Optional parts of a call.
struct AttentionExtras {
  /// The parameter behind how.bias.table, [buckets, heads]; null: the table is not trained.
  Parameter* table = nullptr;
  /// Called before each attend; may change how it runs.
  std::function<void(const View& q, const View& k, const View& v, Attention& how)> before_call = {};
  /// Called after each attend, with its result except the output.
  std::function<void(const Attended&)> after_call = {};
};

/// [rows of q, heads * dim]. `shape.heads` are those of q; k and v have `kv_heads`. q, k and v may
/// be columns of one variable, and k may be q itself. The tables of `how` must outlive backward.
RAPT_API Variable attention(Tape& tape, const HeadColumns& q, const HeadColumns& k,
                            const HeadColumns& v, const HeadShape& shape, Index kv_heads,
                            const Attention& how, const AttentionExtras& extras = {});

/// One sequence of several, or neighbours of one length.
struct SequenceCall {
  Index tokens;
  Attention how;
  Index items = 1;                 // neighbours of so many tokens each
  std::optional<Index> keys = {};  // of each; none: as many as tokens
};

/// The same for sequences of several lengths, contiguous in the rows. Each has the same bits alone
/// and in any batch. shape.items is 1. before_call is called for all of them before the first runs,
/// after_call for all of them after the last.
RAPT_API Variable attention_varlen(Tape& tape, const HeadColumns& q, const HeadColumns& k,
                                   const HeadColumns& v, const HeadShape& shape, Index kv_heads,
                                   const std::vector<SequenceCall>& sequences,
                                   const AttentionExtras& extras = {});

/// Contiguous sequences, and the heads of all of them.
struct SequenceHeads {
  std::vector<Index> lengths;
  Index heads = 1;
  Index dim = 64;
};
/// Longformer's attention: queries, keys and values are columns of `qkv` [rows, 3 heads dim], those
/// of global tokens of `global_qkv`, which may be empty if there are none. how.classes has one
/// entry for each row, or is empty.
RAPT_API Variable longformer_attention(Tape& tape, const Variable& qkv, const Variable& global_qkv,
                                       const SequenceHeads& shape, const Longformer& how);

/// The RMS norm of each head of some columns, one gain [dim] for all: [rows, heads * dim].
RAPT_API Variable head_norm(Tape& tape, const HeadColumns& x, const HeadShape& shape,
                            Parameter& gain, double epsilon);

/// Rotates the first shape.heads heads of every row by their positions: row r has positions[r], or,
/// if there are none, token t of every item has first + t. Reuses the memory of x if nothing else
/// holds it.
RAPT_API Variable rotate(Tape& tape, Variable x, const HeadShape& shape, const Rope& rope,
                         const std::vector<Index>& positions = {}, Index first = 0);
/// The same for contiguous sequences, the tokens of each counted from 0 and rotated by a rope of
/// its own. shape.items is 1.
RAPT_API Variable rotate_varlen(Tape& tape, Variable x, const HeadShape& shape,
                                const std::vector<Index>& lengths, const std::vector<Rope>& ropes);

}  // namespace rapt
