#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rapt/models/tokenizer.h"

namespace rapt::detail {

/// A tokenizer as files of weights carry it (GGUF): lists and a few names.
struct TokenizerParts {
  /// "llama": SentencePiece's BPE, merged by score; "gpt2": byte-level BPE; "bert": WordPiece.
  std::string model = {};
  /// How "gpt2" cuts: one of the names that named_pre_tokenizer.cpp has; empty: "default".
  std::string pre = {};
  std::vector<std::string> tokens = {};  // by id; for "bert" with U+2581 where a word begins
  std::vector<double> scores = {};       // of "llama", by id
  /// By id: 1 plain, 2 unknown, 3 control, 4 added by users, 5 unused, 6 a byte. Empty: all plain.
  std::vector<Index> types = {};
  std::vector<std::string> merges = {};  // of "gpt2": "a b"
  SpecialTokens special = {};
  /// None: as the model's kind does: "llama" adds bos, "bert" both, "gpt2" neither.
  std::optional<bool> add_bos = {}, add_eos = {};
  bool add_space_prefix = true;            // of "llama"
  bool lowercase = true;                   // of "bert"
  std::optional<bool> strip_accents = {};  // of "bert"; empty: as lowercase
};

/// Throws std::runtime_error, beginning with `source`, for anything unsupported.
Tokenizer tokenizer_from_parts(TokenizerParts parts, const std::string& source);

}  // namespace rapt::detail
