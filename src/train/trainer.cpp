#include "train/trainer.h"

#include <cmath>

#include "base/check.h"
#include "base/clock.h"
#include "base/io/check_input.h"
#include "base/keep_memory.h"
#include "base/numerics.h"
#include "formats/tensors/safetensors_file.h"
#include "model/cost.h"
#include "rapt/peak.h"
#include "train/data/packed_batch.h"
#include "train/run/folder_guard.h"
#include "train/run/run_folder.h"

namespace rapt {
using namespace detail;
namespace {

std::vector<Parameter*> pointers(std::span<Parameter> parameters) {
  std::vector<Parameter*> all;
  for (Parameter& parameter : parameters) all.push_back(&parameter);
  return all;
}

/// A layer whose attention looks at one key only has stopped learning where to look.
constexpr double saturated_share = 0.9;

/// A disk that stays full ends a run: otherwise it would spend hours on steps that are lost.
constexpr Index most_failed_saves = 3;

/// Memory of a step that is kept for the next one.
constexpr std::size_t step_memory = std::size_t{2} << 30;

}  // namespace

Trainer::Trainer(const RunConfig& config, const std::string& folder, ExistingRun existing_run,
                 const TrainEvents& events, const Context& context)
    : store_(folder, {.keep = config.train.keep_checkpoints, .locked = true}),
      events_(events),
      cancel_check_([&events] {
        if (events.stop && events.stop()) throw StopAsked();
      }),
      prepared_(prepare_run(config, folder, store_, existing_run, cancel_check_)),
      config_(prepared_.config),
      context_(context),
      model_(config_.model),
      data_(open_data(config_.data, prepared_.tokenizer, cancel_check_)),
      optimizer_(pointers(model_.parameters()), config.train.optimizer),
      metrics_(folder + "/" + metrics_name) {
  check(data_->vocab_size() <= *config_.model.vocab_size, "train: the data has ",
        data_->vocab_size(), " different tokens, but model.vocab_size is ",
        *config_.model.vocab_size, "; expected at least as many");
  origin_ = {
      .isa = context_.isa(), .version = version(), .numerics = numerics_revision, .tokenizer = {}};
  if (prepared_.resumes) {
    origin_.tokenizer = tokenizer_hash(config_, folder);
    resume();
  }
  // Everything is checked: from here on the folder belongs to this run.
  if (!prepared_.resumes) store_.clear();
  if (prepared_.resumes)
    metrics_.cut_after(step_, pending_ ? step_ - 1 : step_);
  else
    metrics_.cut_after(-1, -1);
  write_run(prepared_, folder);
  origin_.tokenizer = tokenizer_hash(config_, folder);
}

void Trainer::notice(const std::string& line) const {
  if (events_.notice) events_.notice(line);
}

void Trainer::pass_warnings() {
  for (const std::string& line : store_.take_warnings()) notice(line);
}

void Trainer::resume() {
  const std::optional<Index> latest = store_.latest();
  pass_warnings();
  if (!latest)
    fail_input("train: no checkpoint in ", store_.folder(),
               " is whole; start the run over, or take another folder");
  Checkpoint checkpoint = store_.load(*latest);
  const RunState state = state_of(checkpoint);
  check_tokenizer(state.tokenizer, *latest, origin_.tokenizer, store_.folder());
  restore(checkpoint, config_, *data_, model_, optimizer_);
  step_ = saved_ = *latest;
  best_loss_ = state.best_loss;
  waits_ = state.waits;
  evaluated_ = state.evaluated;
  pending_ = state.pending;
  notice("resuming from step " + std::to_string(step_));
  if (const std::string other = bits_may_differ(state, origin_); !other.empty()) notice(other);
}

/// Loss and gradients of all batches of a step, as if they were one.
Trainer::StepLoss Trainer::gradients() {
  StepLoss sum;
  std::vector<PackedBatch> batches;
  for (Index i = 0; i < config_.train.accumulation_steps; ++i) {
    const Batch batch = data_->batch(step_ * config_.train.accumulation_steps + i);
    sum.counted += batch.counted();
    batches.push_back(packed(batch));
    sum.tokens +=
        static_cast<Index>(batches.back().tokens.ids.size() + batches.back().sources.ids.size());
  }
  clear_gradients(optimizer_.parameters());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const PackedBatch& batch = batches[i];
    Tape tape(Tape::Mode::train, context_);
    // Each batch of a step drops other numbers.
    const PassOptions options{
        .dropout = {config_.train.seed,
                    step_ * config_.train.accumulation_steps + static_cast<Index>(i)}};
    const Variable hidden = batch.sources.ids.empty()
                                ? model_.forward(tape, batch.tokens, options)
                                : model_.forward(tape, batch.tokens, batch.sources, options);
    const TokenLoss loss =
        model_.loss(tape, hidden, batch.targets,
                    {.label_smoothing = config_.train.label_smoothing,
                     .divisor = static_cast<double>(std::max<Index>(1, sum.counted))});
    sum.total += loss.total;
    tape.backward(loss.loss);
  }
  return sum;
}

void Trainer::check_finite(double loss, const GradientNorm& norm) {
  if (std::isfinite(loss) && norm.bad == nullptr) return;
  std::string saved = "the weights before it are saved as step " + std::to_string(step_);
  try {
    save();  // they have not moved yet
  } catch (const std::exception& error) {
    saved = std::string("and the weights before it could not be saved: ") + error.what();
  }
  const std::string what = norm.bad == nullptr
                               ? "the loss is " + std::to_string(loss)
                               : "the gradient of " + norm.bad->name + " is not finite (loss " +
                                     std::to_string(loss) + ")";
  fail_input("train: ", what, " at step ", step_ + 1, "; ", saved,
             ". A lower learning_rate or max_grad_norm may help");
}

void Trainer::report(const StepLoss& loss, double learning_rate, double norm, double seconds) {
  if (step_ % config_.train.log_every != 0 && step_ != config_.train.steps) return;
  TrainProgress progress;
  progress.step = step_;
  progress.steps = config_.train.steps;
  progress.loss = loss.mean();
  progress.learning_rate = learning_rate;
  progress.gradient_norm = norm;
  progress.tokens_per_second = static_cast<double>(loss.tokens) / seconds;
  progress.of_peak = 3 * flops_per_token_ * progress.tokens_per_second / (peak_gflops_ * 1e9);
  progress.seconds_left = seconds * static_cast<double>(config_.train.steps - step_);
  if (!metrics_.add(progress)) notice("metrics.jsonl: a line could not be written");
  if (events_.progress) events_.progress(progress);
}

void Trainer::take_step() {
  const Clock::time_point start = Clock::now();
  const StepLoss loss = gradients();
  const GradientNorm norm = gradient_norm(optimizer_.parameters(), context_);
  check_finite(loss.mean(), norm);
  const double learning_rate = learning_rate_at(config_.train, step_);
  moving_ = true;
  optimizer_.step({.learning_rate = learning_rate,
                   .gradient_factor = clip_factor(norm.norm, config_.train.max_grad_norm)},
                  context_);
  model_.refresh();
  ++step_;
  ++result_.steps_taken;
  result_.loss = loss.mean();
  pending_ = evaluation_due();
  moving_ = false;
  report(loss, learning_rate, norm.norm, seconds_since(start));
}

Evaluation Trainer::evaluate() {
  Evaluation made{.step = step_};
  Accuracy accuracy;
  double total = 0;
  for (Index i = 0; i < data_->eval_batches(); ++i) {
    cancel_check_();
    const Batch batch = data_->eval_batch(i);
    const PackedBatch rows = packed(batch);
    Tape tape(Tape::Mode::forward, context_);
    const PassOptions options{.stats = i == 0 ? &made.layers : nullptr};
    const Variable hidden = rows.sources.ids.empty()
                                ? model_.forward(tape, rows.tokens, options)
                                : model_.forward(tape, rows.tokens, rows.sources, options);
    const TokenLoss loss = model_.loss(tape, hidden, rows.targets);
    total += loss.total;
    accuracy.add(batch, rows.spread(loss.likeliest, batch));
  }
  made.loss = accuracy.targets == 0 ? 0 : total / static_cast<double>(accuracy.targets);
  made.accuracy = accuracy.of_targets();
  made.exact = accuracy.of_items();
  if (!metrics_.add(made)) notice("metrics.jsonl: a line could not be written");
  for (const LayerStats& layer : made.layers)
    if (layer.saturated > saturated_share)
      notice(layer.layer + ": " + std::to_string(static_cast<int>(100 * layer.saturated)) +
             " % of the rows look at one key only; attention is saturated");
  if (events_.evaluation) events_.evaluation(made);
  return made;
}

bool Trainer::ends(const Evaluation& evaluation) {
  result_.evaluation = evaluation;
  const bool better =
      std::isfinite(evaluation.loss) && (!evaluated_ || evaluation.loss < best_loss_);
  best_loss_ = better ? evaluation.loss : best_loss_;
  waits_ = better ? 0 : waits_ + 1;
  evaluated_ |= better;
  if (config_.train.target_accuracy && evaluation.exact >= *config_.train.target_accuracy) {
    result_.finish_reason = TrainResult::Finish::accuracy;
    return true;
  }
  if (config_.train.patience && waits_ >= *config_.train.patience) {
    result_.finish_reason = TrainResult::Finish::patience;
    return true;
  }
  return false;
}

void Trainer::save() {
  if (saved_ == step_) return;
  tried_ = step_;
  RunState state = origin_;
  state.best_loss = best_loss_;
  state.waits = waits_;
  state.evaluated = evaluated_;
  state.pending = pending_;
  save_checkpoint(store_, step_, config_, *data_, model_, optimizer_, state);
  saved_ = step_;
  failed_saves_ = 0;
}

/// A disk that is full in the middle of a run may have space again later; at the end it must.
void Trainer::save_if_due(bool last) {
  const std::optional<Index> every = config_.train.save_every;
  if (!last && (!every || step_ % *every != 0)) return;
  try {
    save();
  } catch (const std::exception& error) {
    ++failed_saves_;
    if (last) throw;
    if (failed_saves_ >= most_failed_saves)
      fail_input("train: ", failed_saves_, " saves in a row have failed, the last one at step ",
                 step_, ": ", error.what(), "; the checkpoints before them are whole");
    notice("step " + std::to_string(step_) + " is not saved: " + error.what() +
           "; training ends after " + std::to_string(most_failed_saves) + " failed saves in a row");
  }
  pass_warnings();
}

/// Saves the steps before an error, unless it came while weights were changing, or from saving.
void Trainer::save_before_error() noexcept {
  if (moving_ || result_.steps_taken == 0 || tried_ == step_) return;
  try {
    save();
  } catch (...) {
    // The first error is the one to report; earlier checkpoints are whole.
  }
}

bool Trainer::evaluation_due() const {
  const std::optional<Index> every = config_.train.evaluate_every;
  const bool last = step_ == config_.train.steps;
  return data_->eval_batches() > 0 && (last || (every && step_ % *every == 0));
}

TrainResult Trainer::run() {
  if (config_.model.weight_type == Type::bf16) peak_gflops_ = measure_bf16_gflops(0.1, context_);
  if (peak_gflops_ == 0) peak_gflops_ = measure_fma_gflops(0.1, context_);
  // Sources are read and counted too.
  const bool both = config_.model.kind == ModelConfig::Kind::encoder_decoder;
  flops_per_token_ = forward_flops(model_, 1, config_.data.tokens) /
                     static_cast<double>((both ? 2 : 1) * config_.data.tokens);
  notice(data_->describe());
  const KeepMemory keep(step_memory);
  bool ended = step_ >= config_.train.steps && !pending_;
  try {
    while (!ended) {
      cancel_check_();
      ended = !advance();
      save_if_due(ended);
    }
  } catch (const StopAsked&) {
    result_.finish_reason = TrainResult::Finish::stopped;
    if (result_.steps_taken > 0) save_if_due(true);
  } catch (...) {
    save_before_error();
    throw;
  }
  result_.step = step_;
  return result_;
}

bool Trainer::advance() {
  if (!pending_) take_step();
  bool ended = step_ >= config_.train.steps;
  if (pending_) {
    const Evaluation evaluation = evaluate();
    pending_ = false;
    if (saved_ == step_) saved_ = -1;  // that one still waits for it
    ended |= ends(evaluation);
  }
  return !ended;
}

TrainResult train(const RunConfig& config, const std::string& folder, ExistingRun existing_run,
                  const TrainEvents& events, const Context& context) {
  check_apart(config.data, folder);
  if (existing_run != ExistingRun::overwrite) check_free(folder);
  try {
    FolderGuard guard(folder);
    Trainer trainer(config, folder, existing_run, events, context);
    guard.keep();
    return trainer.run();
  } catch (const StopAsked&) {  // while data was read: nothing has changed
    return {.finish_reason = TrainResult::Finish::stopped};
  }
}

}  // namespace rapt
