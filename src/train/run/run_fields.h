#pragma once

#include "model/config/config_fields.h"
#include "rapt/models/train.h"

namespace rapt::detail {

// The lists of the keys of a run's config, besides those of its model.

template <class Options, class Visitor>
void visit_data_fields(Options& o, Visitor& visit) {
  visit("path", o.path);
  visit("objective", o.objective);
  visit("batch_size", o.batch_size);
  visit("tokens", o.tokens);
  visit("seed", o.seed);
  visit("eval_batches", o.eval_batches);
  visit("eval_fraction", o.eval_fraction);
  visit("eval_path", o.eval_path);
  visit("separate_documents", o.separate_documents);
  visit("mask_probability", o.mask_probability);
  visit("symbols", o.symbols);
  visit("shortest", o.shortest);
  visit("pairs", o.pairs);
  visit("queries", o.queries);
}

template <class Options, class Visitor>
void visit_tokenizer_fields(Options& o, Visitor& visit) {
  visit("kind", o.kind);
  visit("vocab_size", o.vocab_size);
  visit("path", o.path);
}

template <class Options, class Visitor>
void visit_train_fields(Options& o, Visitor& visit) {
  visit("steps", o.steps);
  visit("learning_rate", o.learning_rate);
  visit("min_learning_rate", o.schedule.min_learning_rate);
  visit("warmup_steps", o.schedule.warmup_steps);
  visit("decay", o.schedule.decay);
  visit("beta1", o.optimizer.beta1);
  visit("beta2", o.optimizer.beta2);
  visit("epsilon", o.optimizer.epsilon);
  visit("weight_decay", o.optimizer.weight_decay);
  visit("accumulation_steps", o.accumulation_steps);
  visit("max_grad_norm", o.max_grad_norm);
  visit("label_smoothing", o.label_smoothing);
  visit("log_every", o.log_every);
  visit("evaluate_every", o.evaluate_every);
  visit("save_every", o.save_every);
  visit("keep_checkpoints", o.keep_checkpoints);
  visit("patience", o.patience);
  visit("target_accuracy", o.target_accuracy);
  visit("seed", o.seed);
}

}  // namespace rapt::detail
