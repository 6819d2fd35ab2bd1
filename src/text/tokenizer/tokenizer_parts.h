#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rapt/tokenizer.h"

namespace rapt {

/// A tokenizer as files of weights carry it (GGUF): lists and a few names.
struct TokenizerParts {
  /// "llama": SentencePiece's BPE, merged by score; "gpt2": byte-level BPE; "bert": WordPiece.
  std::string model = {};
  /// How "gpt2" cuts: one of the names that pre_names.cpp has; empty: "default".
  std::string pre = {};
  std::vector<std::string> tokens = {};  // by id; of "bert" with U+2581 where a word begins
  std::vector<double> scores = {};       // of "llama", by id
  /// By id: 1 plain, 2 unknown, 3 control, 4 added by users, 5 unused, 6 a byte. Empty: all plain.
  std::vector<Index> types = {};
  std::vector<std::string> merges = {};  // of "gpt2": "a b"
  SpecialTokens special = {};
  /// Empty: what the model's kind does, that is llama begins, bert frames, gpt2 does neither.
  std::optional<bool> add_begin = {}, add_end = {};
  bool space_prefix = true;                // of "llama": a space is put before a text
  bool lowercase = true;                   // of "bert"
  std::optional<bool> strip_accents = {};  // of "bert"; empty: as lowercase
};

/// Throws std::runtime_error, beginning with `source`, for what is not understood.
Tokenizer tokenizer_from_parts(TokenizerParts parts, const std::string& source);

}  // namespace rapt
