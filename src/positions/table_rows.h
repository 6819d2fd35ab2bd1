#pragma once

#include <functional>

#include "positions/token_positions.h"

namespace rapt::detail {

/// Which row of a table belongs to a token.
using RowOfToken = std::function<Index(Index item, Index token)>;

/// Throws unless the table is [rows, width], whatever its strides.
void check_table(const char* where, const char* name, const View& table);
/// Throws unless dout is [batch, tokens, dim], whatever its strides.
void check_token_gradient(const char* where, const View& dout);
/// Throws if positions have several axes.
TokenPositions line_positions(const char* where, const Positions& positions, TokenGrid grid);

/// out[item, token, first ...] = table[row]
void look_up(const View& table, const RowOfToken& row, Index first, Tensor& out);
/// [rows, width]: rows of dout's columns from `first` on, added up in f64 in the order of the
/// tokens.
Tensor add_up(const View& dout, const RowOfToken& row, Index first, const Shape& table);

}  // namespace rapt::detail
