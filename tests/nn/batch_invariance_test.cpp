// The same bits whatever else is in the batch: products row by row, models sequence by sequence.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "kernels/context.h"
#include "nn/matmul/weight.h"
#include "rapt/models/generate.h"
#include "rapt/models/transformer.h"
#include "support/engine.h"
#include "support/models.h"
#include "support/network.h"
#include "support/refused.h"
#include "support/truth/bound.h"

namespace rapt::test {
using namespace detail;
namespace {

// Products ----------------------------------------------------------------------------------------

/// A weight in every form that products read.
std::vector<Parameter> every_weight(Index out, Index in, const Context& context) {
  std::vector<Parameter> all;
  for (const Type type : {Type::f32, Type::f16, Type::bf16})
    for (const bool packed : {false, true}) {
      Parameter& weight = all.emplace_back();
      weight.name = to_string(type) + (packed ? " packed" : "");
      weight.value = random_tensor({out, in}, 1).converted(type);
      if (packed) weight.pack(context);
    }
  for (const char* type : {"q8_0", "q8_1", "q4_0", "q4_1"}) {
    Parameter& weight = all.emplace_back();
    weight.name = type;
    weight.value = random_tensor({out, in}, 1);
    weight.quantize(from_string<Quantization>(type), context);
  }
  return all;
}

/// The first rows of x times the weight.
Tensor product(const Tensor& x, Index first, Index rows, const Parameter& weight,
               const Tensor& bias, const Context& context) {
  const Index in = x.shape()[1], out = weight.shape()[0];
  Tensor y = Tensor::uninitialized({rows, out});
  multiply_weight({x.data() + first * in, Type::f32, rows, in, in, 1}, weight,
                  {.data = y.data(), .stride = out, .bias = bias.data()}, context);
  return y;
}

bool same_bits(const float* a, const float* b, Index count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

std::vector<Context> every_context() {
  std::vector<Context> all = every_isa();
  all.insert(all.end(), every_bf16_isa().begin(), every_bf16_isa().end());
  return all;
}

void expect_rows_alone(const Parameter& weight, const Tensor& x, const std::vector<Index>& counts,
                       const Context& context) {
  const Index out = weight.shape()[0], rows = x.shape()[0];
  const Tensor bias = random_tensor({out}, 3);
  Tensor alone = Tensor::uninitialized({rows, out});
  for (Index r = 0; r < rows; ++r)
    std::memcpy(alone.data() + r * out, product(x, r, 1, weight, bias, context).data(),
                static_cast<std::size_t>(out) * sizeof(float));
  for (const Index count : counts) {
    const Tensor y = product(x, 0, count, weight, bias, context);
    for (Index r = 0; r < count; ++r)
      ASSERT_TRUE(same_bits(y.data() + r * out, alone.data() + r * out, out))
          << weight.name << " [" << out << ", " << x.shape()[1] << "] on " << context.isa()
          << ": row " << r << " of " << count;
  }
}

TEST(BatchInvariance, ARowOfAProductHasTheBitsOfItsProductAlone) {
  std::vector<Index> counts;
  for (Index rows = 1; rows <= 70; ++rows) counts.push_back(rows);
  counts.push_back(131);
  for (const Context& context : every_context())
    for (const auto& [out, in] : {std::pair<Index, Index>{25, 17}, {77, 403}, {49, 64}})
      for (const Parameter& weight : every_weight(out, in, context))
        expect_rows_alone(weight, random_tensor({131, in}, 2), counts, context);
}

/// Several blocks of the depth, several tasks, and rows that are packed for all of them.
TEST(BatchInvariance, ARowOfALargeProductHasTheBitsOfItsProductAlone) {
  for (const Context& context : every_context())
    for (const Parameter& weight : every_weight(700, 1100, context))
      expect_rows_alone(weight, random_tensor({300, 1100}, 2), {2, 3, 4, 7, 8, 9, 16, 17, 300},
                        Context(3, context.isa()));
}

TEST(BatchInvariance, PackingChangesNoBit) {
  for (const Context& context : every_context())
    for (const Index rows : {1, 3, 8, 9, 40}) {
      const Tensor x = random_tensor({rows, 403}, 2), bias = random_tensor({77}, 3);
      const std::vector<Parameter> all = every_weight(77, 403, context);
      for (std::size_t i = 0; i < 6; i += 2)
        EXPECT_SILENT(different_bits(all[i].name,
                                     product(x, 0, rows, all[i], bias, context).numbers(),
                                     product(x, 0, rows, all[i + 1], bias, context).numbers()))
            << rows << " rows on " << context.isa();
    }
}

// Models ------------------------------------------------------------------------------------------

/// Models of one size with weights of every kind.
std::vector<ModelCase> weight_cases() {
  ModelConfig config = tiny_config();
  config.vocab_size = 61;
  config.hidden_size = 96;
  config.heads = 3;
  config.kv_heads = 1;
  return {{"f32", config}, {"f16", config}, {"bf16", config}, {"q8_0", config}, {"q4_1", config}};
}

Transformer model_of(const ModelCase& c, const Context& context) {
  Transformer model = noisy_model(c.config);
  for (Parameter& parameter : model.parameters()) {
    if (parameter.value.shape().rank() != 2) continue;
    if (c.name.starts_with("q")) {
      parameter.quantize(from_string<Quantization>(c.name), context);
    } else {
      parameter.value = parameter.value.converted(from_string<Type>(c.name));
    }
  }
  return model;
}

Tensor forward_of(const Transformer& model, const Tokens& tokens, const Context& context) {
  Tape tape(Tape::Mode::forward, context);
  return Tape::release(model.forward(tape, tokens));
}

Tokens sequence_of(const Tokens& all, std::size_t index) {
  auto first = all.ids.begin();
  for (std::size_t i = 0; i < index; ++i) first += all.lengths[i];
  return Tokens::one({first, first + all.lengths[index]});
}

TEST(BatchInvariance, ASequenceHasTheSameRowsAndLogitsInAnyCompany) {
  const std::vector<Index> lengths = {9, 70, 1, 33, 33, 4, 130, 17};
  for (const Context& context : every_context())
    for (const ModelCase& c : weight_cases())
      for (const bool packed : {false, true}) {
        Transformer model = model_of(c, context);
        if (packed) model.pack(context);
        const Tokens tokens = random_tokens(*c.config.vocab_size, lengths, 5);
        const Tensor together = forward_of(model, tokens, context);
        const Tensor logits = model.logits(together, context);
        Index row = 0;
        for (std::size_t i = 0; i < lengths.size(); ++i) {
          const Tensor alone = forward_of(model, sequence_of(tokens, i), context);
          EXPECT_SILENT(
              different_bits("rows", rows_of(together, row, lengths[i]).numbers(), alone.numbers()))
              << c.name << ", sequence " << i << " on " << context.isa();
          EXPECT_SILENT(different_bits("logits", rows_of(logits, row, lengths[i]).numbers(),
                                       model.logits(alone, context).numbers()))
              << c.name << ", sequence " << i << " on " << context.isa();
          row += lengths[i];
        }
      }
}

TEST(BatchInvariance, ASequenceOfACacheHasTheSameRowsInAnyCompany) {
  const std::vector<Index> lengths = {9, 70, 1, 33};
  for (const Context& context : every_context())
    for (const ModelCase& c : weight_cases()) {
      Transformer model = model_of(c, context);
      model.pack(context);
      ModelCache shared(model, {}, context);
      std::vector<Index> sequences;
      for (std::size_t i = 0; i < lengths.size(); ++i) sequences.push_back(shared.add());
      const Tokens prompts = random_tokens(*c.config.vocab_size, lengths, 5);
      const Tokens next = random_tokens(*c.config.vocab_size, {1, 1, 1, 1}, 6);
      const Tensor read = model.extend(prompts, shared, sequences, context);
      const Tensor more = model.extend(next, shared, sequences, context);
      Index row = 0;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        ModelCache own(model, {}, context);
        const Index one[] = {own.add()};
        EXPECT_SILENT(
            different_bits("prompt", rows_of(read, row, lengths[i]).numbers(),
                           model.extend(sequence_of(prompts, i), own, one, context).numbers()))
            << c.name << ", sequence " << i << " on " << context.isa();
        EXPECT_SILENT(
            different_bits("next", rows_of(more, static_cast<Index>(i), 1).numbers(),
                           model.extend(sequence_of(next, i), own, one, context).numbers()))
            << c.name << ", sequence " << i << " on " << context.isa();
        row += lengths[i];
      }
    }
}

TEST(BatchInvariance, APromptGivesTheSameTokensAndLogProbabilityInAnyCompany) {
  for (const ModelCase& c : weight_cases()) {
    Transformer model = model_of(c, {});
    model.pack();
    std::vector<std::vector<std::int32_t>> prompts;
    for (Index i = 1; i <= 11; ++i)
      prompts.push_back(random_tokens(*c.config.vocab_size, {i * i}, 7).ids);
    const GenerateOptions options{
        .sampling = {.top_p = 0.95}, .max_new_tokens = 12, .log_probability = true};
    const std::vector<Generated> together = generate(model, prompts, options);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Generated alone = generate(model, std::span(&prompts[i], 1), options).front();
      EXPECT_EQ(together[i].ids, alone.ids) << c.name << ", prompt " << i;
      EXPECT_EQ(together[i].log_probability, alone.log_probability) << c.name << ", prompt " << i;
    }
  }
}

// Threads -----------------------------------------------------------------------------------------

struct SharedAnswer {
  Tensor read, logits;
  std::vector<std::int32_t> written;
};

TEST(SharedModel, SeveralThreadsReadOneModelAndEachWritesACacheOfItsOwn) {
  const ModelCase c = weight_cases().front();
  Transformer loaded = model_of(c, {});
  loaded.pack();
  const Transformer& model = loaded;
  const Tokens tokens = random_tokens(*c.config.vocab_size, {20, 7}, 5);
  const Context context(2);
  const auto answer = [&] {
    ModelCache cache(model, {}, context);
    const Index sequences[] = {cache.add(), cache.add()};
    Tensor read = model.extend(tokens, cache, sequences, context);
    Tensor logits = model.logits(forward_of(model, tokens, context), context);
    const std::vector<std::vector<std::int32_t>> prompts = {tokens.ids};
    return SharedAnswer{std::move(read), std::move(logits),
                        generate(model, prompts, {.max_new_tokens = 5}, {}, context).front().ids};
  };
  const SharedAnswer want = answer();
  std::vector<SharedAnswer> got(4);
  std::vector<std::thread> threads;
  for (SharedAnswer& one : got) threads.emplace_back([&] { one = answer(); });
  for (std::thread& thread : threads) thread.join();
  for (const SharedAnswer& one : got) {
    EXPECT_SILENT(different_bits("extend", one.read.numbers(), want.read.numbers()));
    EXPECT_SILENT(different_bits("logits", one.logits.numbers(), want.logits.numbers()));
    EXPECT_EQ(one.written, want.written);
  }
}

// What is refused ---------------------------------------------------------------------------------

TEST(ModelCache, RefusesTheSameSequenceTwiceAndChangesNothing) {
  const ModelCase c = weight_cases().front();
  const Transformer model = model_of(c, {});
  ModelCache cache(model, {});
  const Index first = cache.add(), second = cache.add();
  const Tokens two = random_tokens(*c.config.vocab_size, {3, 3}, 5);
  const Index twice[] = {second, second}, each[] = {first, second};
  expect_refused([&] { model.extend(two, cache, twice); },
                 {"extend: sequence 1 is given twice, at 0 and 1", "expected each once", "fork"});
  EXPECT_EQ(cache.tokens(second), 0);
  EXPECT_EQ(model.extend(two, cache, each).shape()[0], 6);
  EXPECT_EQ(cache.tokens(second), 3);
}

TEST(ModelCache, RefusesSourcesOfTheSameSequenceTwice) {
  ModelConfig config = tiny_config();
  config.kind = ModelConfig::Kind::encoder_decoder;
  config.encoder_layers = 1;
  const Transformer model = noisy_model(config);
  ModelCache cache(model, {});
  const Index one = cache.add();
  const Index twice[] = {one, one};
  const Tokens two = random_tokens(*config.vocab_size, {3, 3}, 5);
  expect_refused([&] { model.encode(two, cache, twice); }, {"encode: sequence 0 is given twice"});
}

}  // namespace
}  // namespace rapt::test
