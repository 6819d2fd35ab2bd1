#pragma once

#include "model/config_fields.h"
#include "rapt/train.h"

namespace rapt {

// The lists of what a run's config says, beside its model.

template <>
struct Words<Learning> {
  static constexpr const char* list[] = {"next-token", "masked-token", "pairs"};
};
template <>
struct Words<TokenizerOptions::Kind> {
  static constexpr const char* list[] = {"bytes", "bpe"};
};
template <>
struct Words<Schedule::Decay> {
  static constexpr const char* list[] = {"constant", "linear", "cosine"};
};

template <class Options, class Visitor>
void visit_data_fields(Options& o, Visitor& visit) {
  visit("path", o.path);
  visit("learning", o.learning);
  visit("items", o.items);
  visit("tokens", o.tokens);
  visit("seed", o.seed);
  visit("evaluations", o.evaluations);
  visit("held_out", o.held_out);
  visit("held_out_path", o.held_out_path);
  visit("separate_documents", o.separate_documents);
  visit("masked", o.masked);
  visit("symbols", o.symbols);
  visit("shortest", o.shortest);
  visit("pairs", o.pairs);
  visit("queries", o.queries);
}

template <class Options, class Visitor>
void visit_tokenizer_fields(Options& o, Visitor& visit) {
  visit("kind", o.kind);
  visit("entries", o.entries);
  visit("path", o.path);
}

template <class Options, class Visitor>
void visit_train_fields(Options& o, Visitor& visit) {
  visit("steps", o.steps);
  visit("accumulate", o.accumulate);
  visit("clip", o.clip);
  visit("label_smoothing", o.label_smoothing);
  visit("learning_rate", o.schedule.peak);
  visit("floor", o.schedule.floor);
  visit("warmup", o.schedule.warmup);
  visit("decay", o.schedule.decay);
  visit("beta1", o.optimizer.beta1);
  visit("beta2", o.optimizer.beta2);
  visit("epsilon", o.optimizer.epsilon);
  visit("weight_decay", o.optimizer.weight_decay);
  visit("log_every", o.log_every);
  visit("evaluate_every", o.evaluate_every);
  visit("save_every", o.save_every);
  visit("keep", o.keep);
  visit("patience", o.patience);
  visit("until", o.until);
  visit("seed", o.seed);
}

}  // namespace rapt
