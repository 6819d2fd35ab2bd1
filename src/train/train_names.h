#pragma once

#include "base/enum_names.h"
#include "rapt/train.h"

namespace rapt::detail {

template <>
struct EnumNames<Schedule::Decay> {
  static constexpr const char* what = "decay";
  static constexpr std::string_view names[] = {"constant", "linear", "cosine"};
};
template <>
struct EnumNames<Objective> {
  static constexpr const char* what = "objective";
  static constexpr std::string_view names[] = {"next_token", "masked_token", "pairs"};
};
template <>
struct EnumNames<TokenizerOptions::Kind> {
  static constexpr const char* what = "kind of tokenizer";
  static constexpr std::string_view names[] = {"bytes", "bpe"};
};
template <>
struct EnumNames<TrainResult::Finish> {
  static constexpr const char* what = "finish reason";
  static constexpr std::string_view names[] = {"steps", "patience", "accuracy", "stopped"};
};
template <>
struct EnumNames<FolderTaken::By> {
  static constexpr const char* what = "what a folder is taken by";
  static constexpr std::string_view names[] = {"run", "other_files"};
};
template <>
struct EnumNames<OldRun> {
  static constexpr const char* what = "old run";
  static constexpr std::string_view names[] = {"resume", "refuse", "overwrite"};
};

}  // namespace rapt::detail
