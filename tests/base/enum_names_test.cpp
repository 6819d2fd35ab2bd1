#include "base/enum_names.h"

#include <gtest/gtest.h>

#include <set>

#include "rapt/distributed/prediction.h"
#include "rapt/models/generate.h"
#include "rapt/models/heads.h"
#include "rapt/models/train.h"
#include "rapt/rapt.h"
#include "support/refused.h"

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
  EXPECT_EQ(std::ssize(names), static_cast<int>(last) + 1);
  EXPECT_EQ(names.size(), split_names(enum_names<Enum>).size());
  expect_refused([] { from_string<Enum>("?"); },
                 {std::string(enum_names<Enum>.what) + ": \"?\" given, expected " +
                  to_string(static_cast<Enum>(0))});
  expect_refused([&] { to_string(static_cast<Enum>(static_cast<int>(last) + 1)); },
                 {"given, expected 0 to " + std::to_string(static_cast<int>(last))});
}

// tests/lint/enum_names.py checks that no enum of the public headers is missing below, and that
// names are spelled like the values.

TEST(EnumNames, AreThoseOfTheirValues) {
  EXPECT_EQ(to_string(Type::bf16), "bf16");
  EXPECT_EQ(to_string(RopeLayout::half_split), "half_split");
  expect_names(Activation::silu);
  expect_names(Align::first);
  expect_names(Axial::Order::column_major);
  expect_names(CacheRule::Keys::unrotated);
  expect_names(CacheRule::Renumbering::impossible);
  expect_names(CacheType::int8);
  expect_names(Kerple::Kind::power);
  expect_names(Lsh::Duplicates::once);
  expect_names(Lsh::Keys::separate);
  expect_names(Positions::Kind::grid);
  expect_names(Quantization::q4_1);
  expect_names(ReformerLocal::EmptyRows::sum);
  expect_names(RelativeTable::Direction::past);
  expect_names(RopeLayout::interleaved);
  expect_names(RopeSections::Order::restarted);
  expect_names(Scale::Rule::log_n);
  expect_names(Sinusoidal::Frequencies::inclusive);
  expect_names(Sinusoidal::Layout::halves);
  expect_names(Tape::Mode::train);
  expect_names(TokenClass::global);
  expect_names(Type::f16);
}

TEST(EnumNames, OfModelsAreThoseOfTheirValues) {
  EXPECT_EQ(to_string(ModelConfig::Kind::encoder_decoder), "encoder_decoder");
  EXPECT_EQ(to_string(ModelConfig::NormPosition::post), "post");
  EXPECT_EQ(to_string(ExistingRun::overwrite), "overwrite");
  expect_names(Dense::Activation::tanh);
  expect_names(FolderNotEmpty::Holds::other_files);
  expect_names(GenerateOptions::Overflow::slide);
  expect_names(Generated::Finish::cancelled);
  expect_names(HeadStats::Kind::mixed);
  expect_names(ModelConfig::Biases::ffn);
  expect_names(ModelConfig::Kind::encoder_decoder);
  expect_names(ModelConfig::Norm::rms);
  expect_names(ModelConfig::NormPosition::post);
  expect_names(ModelConfig::Positions::axial);
  expect_names(ModelConfig::SharedKeys::hashed);
  expect_names(Objective::pairs);
  expect_names(ExistingRun::overwrite);
  expect_names(Pooling::Kind::cls);
  expect_names(Schedule::Decay::cosine);
  expect_names(distributed::RankPass::both);
  expect_names(TokenizerOptions::Kind::bpe);
  expect_names(TrainResult::Finish::stopped);
  expect_names(WeightType::q4_1);
}

TEST(EnumNames, ListTheChoices) {
  expect_refused([] { from_string<Type>("f8"); },
                 {"type: \"f8\" given, expected f32, bf16 or f16"});
  expect_refused([] { from_string<RopeLayout>(""); }, {"expected half_split or interleaved"});
  EXPECT_EQ(from_string<RopeLayout>("half-split"), RopeLayout::half_split);
}

enum class Unnamed { one };
static_assert(NamedEnum<Type> && !NamedEnum<Unnamed> && !NamedEnum<int>);

}  // namespace
}  // namespace rapt::test
