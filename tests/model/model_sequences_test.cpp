// Sequences in batches and alone.
#include <gtest/gtest.h>

#include "rapt/models/transformer.h"
#include "support/engine.h"
#include "support/models.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
namespace {

// Company -----------------------------------------------------------------------------------------

TEST(Model, PackedSequencesAreWhatTheyAreAlone) {
  for (const ModelCase& c : model_cases()) {
    Transformer model = noisy_model(c.config);
    for (const std::vector<Index>& lengths :
         {std::vector<Index>{9, 30, 3, 12}, {5, 5, 5}, {3, 4}}) {
      const Sample sample = sample_of(c.config, lengths);
      const Tensor together = hidden_of(model, sample);
      const std::vector<Index> starts = starts_of(lengths);
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const Tensor alone = hidden_of(model, sequence_of(sample, static_cast<Index>(i)));
        EXPECT_SILENT(different_bits("sequence " + std::to_string(i),
                                     rows_of(together, starts[i], lengths[i]).numbers(),
                                     alone.numbers()))
            << c.name << ", " << lengths.size() << " sequences";
      }
    }
  }
}

/// Angles follow the length of the sequence: a rope of that length, fixed in advance.
TEST(Model, RopesThatGrowAreThoseOfTheLength) {
  const auto same = [](const RopeScaling& growing, const RopeScaling& fixed, Index tokens) {
    ModelConfig config = tiny_config();
    config.rope_scaling = growing;
    Transformer model = noisy_model(config);
    config.rope_scaling = fixed;
    Transformer other = noisy_model(config);
    const Sample sample = sample_of(config, {tokens});
    return different_bits("", hidden_of(model, sample).numbers(),
                          hidden_of(other, sample).numbers()) == "";
  };
  // Dynamic NTK with factor f is NTK with f * tokens / trained - (f - 1).
  EXPECT_TRUE(same(DynamicNtkRope{2, 10}, NtkRope{4}, 25));
  EXPECT_FALSE(same(DynamicNtkRope{2, 10}, NtkRope{4}, 24));
  EXPECT_TRUE(same(DynamicNtkRope{2, 10}, NtkRope{1}, 10));
  const std::vector<double> near = {1, 1, 1.5, 2}, far = {1, 2, 4, 8};
  EXPECT_TRUE(same(LongRope{near, far, 16, 4}, LongRope{near, near, 16, 4}, 16));
  EXPECT_TRUE(same(LongRope{near, far, 16, 4}, LongRope{far, far, 16, 4}, 17));
  EXPECT_FALSE(same(LongRope{near, far, 16, 4}, LongRope{near, near, 16, 4}, 17));
}

/// Gradients of all sequences together are the sums of those alone, each loss counted by its
/// targets.
TEST(Model, GradientsOfPackedSequencesAddUp) {
  for (const ModelCase& c : model_cases()) {
    if (c.config.dropout > 0) continue;  // dropout goes by rows
    Transformer model = noisy_model(c.config);
    const std::vector<Index> lengths = {9, 20, 4};
    const Sample sample = sample_of(c.config, lengths);
    const auto counted = [](const Sample& s) {
      return static_cast<double>(
          std::count_if(s.targets.begin(), s.targets.end(), [](auto t) { return t >= 0; }));
    };
    const ModelAnswer together = answer_of(model, sample);
    std::vector<Tensor> sums;
    for (const Tensor& g : together.gradients) sums.emplace_back(g.shape());
    double loss = 0;
    for (Index i = 0; i < 3; ++i) {
      const Sample one = sequence_of(sample, i);
      const ModelAnswer alone = answer_of(model, one);
      const double share = counted(one) / counted(sample);
      loss += share * alone.loss;
      for (std::size_t p = 0; p < sums.size(); ++p)
        for (std::size_t n = 0; n < sums[p].numbers().size(); ++n)
          sums[p].numbers()[n] +=
              static_cast<float>(share * static_cast<double>(alone.gradients[p].numbers()[n]));
    }
    EXPECT_NEAR(together.loss, loss, 1e-6 * loss) << c.name;
    for (std::size_t p = 0; p < sums.size(); ++p)
      EXPECT_SILENT(beyond_model_bound(model.parameters()[p].name, together.gradients[p], sums[p],
                                       depth(c.config)))
          << c.name;
  }
}

/// The same rows, with any other sequences in the batch.
TEST(Model, ItemsOfABatchDoNotTouchOneAnother) {
  for (const ModelCase& c : model_cases()) {
    Transformer model = noisy_model(c.config);
    Sample sample = sample_of(c.config, {8, 8, 8});
    for (Index& length : sample.sources.lengths) length = 10;
    if (!sample.sources.ids.empty())
      sample.sources = random_tokens(*c.config.vocab_size, {10, 10, 10}, 5);
    const Tensor before = hidden_of(model, sample);
    for (std::size_t i = 8; i < 16; ++i)
      sample.tokens.ids[i] = (sample.tokens.ids[i] + 5) % static_cast<int>(*c.config.vocab_size);
    for (std::size_t i = 10; i < 20 && !sample.sources.ids.empty(); ++i)
      sample.sources.ids[i] = (sample.sources.ids[i] + 5) % static_cast<int>(*c.config.vocab_size);
    const Tensor after = hidden_of(model, sample);
    for (const Index first : {0, 16})
      EXPECT_SAME_BITS(c.name, rows_of(after, first, 8).numbers(),
                       rows_of(before, first, 8).numbers());
    EXPECT_NE(different_bits("", rows_of(after, 8, 8).numbers(), rows_of(before, 8, 8).numbers()),
              "")
        << c.name;
  }
}

TEST(Model, AgreesOnEveryInstructionSet) {
  for (const ModelCase& c : model_cases()) {
    if (hashes(c.config)) continue;  // a rounding may change a bucket
    Transformer model = noisy_model(c.config);
    const Sample sample = sample_of(c.config, {9, 30, 3});
    const ModelAnswer want = answer_of(model, sample, every_isa().front());
    for (const Context& context : every_isa()) {
      const ModelAnswer got = answer_of(model, sample, context);
      EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss) << c.name << " on " << context.isa();
      for (std::size_t p = 0; p < want.gradients.size(); ++p)
        EXPECT_SILENT(beyond_model_bound(model.parameters()[p].name, got.gradients[p],
                                         want.gradients[p], depth(c.config)))
            << c.name << " on " << context.isa();
    }
  }
}

TEST(Model, LogitsAreRowsTimesTheHead) {
  for (const bool tied : {true, false}) {
    ModelConfig config = tiny_config();
    config.tied_embeddings = tied;
    Transformer model = noisy_model(config);
    const Tensor hidden = hidden_of(model, sample_of(config, {11}));
    const Tensor logits = model.logits(hidden);
    const Tensor& head = model.parameter(tied ? "embedding.weight" : "head.weight").value;
    Wide want;
    for (Index row = 0; row < 11; ++row)
      for (Index entry = 0; entry < 13; ++entry) {
        double sum = 0;
        for (Index i = 0; i < 16; ++i)
          sum += static_cast<double>(hidden.data()[row * 16 + i]) *
                 static_cast<double>(head.data()[entry * 16 + i]);
        want.push_back(sum);
      }
    EXPECT_SILENT(beyond("logits", logits.numbers(), want, {largest(logits)}, 16));
  }
}

}  // namespace
}  // namespace rapt::test
