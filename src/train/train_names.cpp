#include "train/train_names.h"

namespace rapt {
using namespace detail;

std::string to_string(Schedule::Decay decay) { return enum_name(decay); }
template <>
Schedule::Decay from_string<Schedule::Decay>(std::string_view name) {
  return enum_value<Schedule::Decay>(name);
}

std::string to_string(Objective objective) { return enum_name(objective); }
template <>
Objective from_string<Objective>(std::string_view name) {
  return enum_value<Objective>(name);
}

std::string to_string(TokenizerOptions::Kind kind) { return enum_name(kind); }
template <>
TokenizerOptions::Kind from_string<TokenizerOptions::Kind>(std::string_view name) {
  return enum_value<TokenizerOptions::Kind>(name);
}

std::string to_string(TrainResult::Finish reason) { return enum_name(reason); }
template <>
TrainResult::Finish from_string<TrainResult::Finish>(std::string_view name) {
  return enum_value<TrainResult::Finish>(name);
}

std::string to_string(FolderTaken::By by) { return enum_name(by); }
template <>
FolderTaken::By from_string<FolderTaken::By>(std::string_view name) {
  return enum_value<FolderTaken::By>(name);
}

std::string to_string(OldRun old_run) { return enum_name(old_run); }
template <>
OldRun from_string<OldRun>(std::string_view name) {
  return enum_value<OldRun>(name);
}

}  // namespace rapt
