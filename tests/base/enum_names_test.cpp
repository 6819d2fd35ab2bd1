#include "base/enum_names.h"

#include <gtest/gtest.h>

#include <set>

#include "base/type_names.h"
#include "positions/position_names.h"
#include "rapt/cache.h"
#include "support/refused.h"
#if RAPT_MODELS
#include "model/config/config_fields.h"
#include "train/train_names.h"
#endif

namespace rapt::test {
using namespace detail;
namespace {

/// Every value, back and forth, up to the last.
template <class Enum>
void expect_names(Enum last) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Enum>(i);
    EXPECT_EQ(from_string<Enum>(to_string(value)), value) << to_string(value);
    names.insert(to_string(value));
  }
  EXPECT_EQ(static_cast<int>(names.size()), static_cast<int>(last) + 1);
  EXPECT_EQ(names.size(), std::size(EnumNames<Enum>::names));
  expect_refused([] { from_string<Enum>("?"); },
                 {"\"?\" given, expected " + std::string(EnumNames<Enum>::names[0])});
}

TEST(EnumNames, AreThoseOfTheirValues) {
  EXPECT_EQ(to_string(Type::bf16), "bf16");
  EXPECT_EQ(to_string(RopeLayout::half_split), "half_split");
  expect_names(Type::f16);
  expect_names(RopeLayout::interleaved);
  expect_names(RopeSections::Order::restarted);
  expect_names(Positions::Kind::grid);
  expect_names(CacheRule::Keys::unrotated);
  expect_names(CacheRule::Renumbering::impossible);
  expect_names(Sinusoidal::Layout::halves);
  expect_names(Sinusoidal::Frequencies::inclusive);
  expect_names(Axial::Order::column_major);
}

TEST(EnumNames, ListTheChoices) {
  expect_refused([] { from_string<Type>("f8"); },
                 {"type: \"f8\" given, expected f32, bf16 or f16"});
  expect_refused([] { from_string<RopeLayout>(""); }, {"expected half_split or interleaved"});
  EXPECT_EQ(from_string<RopeLayout>("half-split"), RopeLayout::half_split);
}

#if RAPT_MODELS
TEST(EnumNames, OfConfigsAreThoseOfTheirValues) {
  EXPECT_EQ(to_string(ModelConfig::Kind::encoder_decoder), "encoder_decoder");
  EXPECT_EQ(to_string(ModelConfig::NormPosition::post), "post");
  EXPECT_EQ(to_string(OldRun::overwrite), "overwrite");
  expect_names(ModelConfig::Kind::encoder_decoder);
  expect_names(ModelConfig::Norm::rms);
  expect_names(ModelConfig::NormPosition::post);
  expect_names(ModelConfig::Positions::axial);
  expect_names(ModelConfig::Biases::ffn);
  expect_names(ModelConfig::SharedKeys::hashed);
  expect_names(Activation::silu);
  expect_names(Scale::Rule::log_n);
  expect_names(Schedule::Decay::cosine);
  expect_names(Objective::pairs);
  expect_names(TokenizerOptions::Kind::bpe);
  expect_names(TrainResult::Finish::stopped);
  expect_names(FolderTaken::By::other_files);
  expect_names(OldRun::overwrite);
}
#endif

}  // namespace
}  // namespace rapt::test
