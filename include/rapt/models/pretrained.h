#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rapt/models/tokenizer.h"
#include "rapt/models/transformer.h"

namespace rapt {

/// Special tokens of a model, as its files name them.
struct ModelTokens {
  std::optional<std::int32_t> bos;
  std::vector<std::int32_t> eos;  // any of them ends a text
  std::optional<std::int32_t> pad;
  std::optional<std::int32_t> decoder_start;  // of an encoder-decoder
};

/// A dense layer behind the pooling: activation(weight · row + bias).
struct Dense {
  enum class Activation { identity, tanh };
  Index in_features = 0, out_features = 0;
  std::vector<float> weight = {};  // [out_features, in_features]
  std::vector<float> bias = {};    // [out_features], or empty
  Activation activation = Activation::identity;
};
template <>
inline constexpr EnumNames enum_names<Dense::Activation>{"dense activation", "identity, tanh"};

/// How rows of an encoder become one vector for a text, as in sentence-transformers folders.
struct Pooling {
  enum class Kind { mean, cls };
  Kind kind = Kind::mean;
  std::vector<Dense> dense = {};             // applied to the pooled row, in this order
  bool normalize = false;                    // to length 1, last
  std::optional<Index> max_seq_length = {};  // longer texts are truncated
};
template <>
inline constexpr EnumNames enum_names<Pooling::Kind>{"pooling kind", "mean, cls"};

/// A pretrained model with everything its files say.
struct Pretrained {
  std::string family;  // "llama", "bert", ...; "rapt": a run of train()
  Transformer model;
  std::optional<Tokenizer> tokenizer;
  ModelTokens special_tokens = {};
  Pooling pooling = {};                             // mean, unless the files say otherwise
  std::optional<std::string> chat_template = {};    // as the files have it
  std::vector<std::string> warnings = {};           // what the user should know
  std::optional<Index> model_max_length = {};       // of the tokenizer's files
  std::vector<std::string> model_input_names = {};  // of the tokenizer's files
  /// Tensors in the files that rapt does not compute with; save_pretrained() does not write them.
  std::vector<std::string> unused_tensors = {};
};

/// What the matrices of a model become as it is loaded.
enum class WeightType {
  stored,  // quantized, bf16 and f16 matrices stay as they are; everything else becomes f32
  f32,
  bf16,  // half the memory of f32; on CPUs that multiply bf16, activations are rounded as well
  f16,   // half the memory of f32; values beyond 65504 are refused
  q8_0,
  q4_0,
  q4_1,
};
template <>
inline constexpr EnumNames enum_names<WeightType>{"weight_type",
                                                  "stored, f32, bf16, f16, q8_0, q4_0, q4_1"};

struct LoadOptions {
  WeightType weight_type = WeightType::stored;
  bool allow_non_finite = false;  // otherwise a model with infinite or NaN weights is refused
};

/// Loads a folder in the format of Hugging Face's save_pretrained (config.json, model.safetensors
/// or its shards, tokenizer.json), or a GGUF file. Checks every tensor: name, shape, finite
/// numbers. Throws std::runtime_error that names what is missing, unknown, mis-shaped or not
/// finite.
RAPT_API Pretrained load_pretrained(const std::string& path, const LoadOptions& options = {});

/// What the headers of a model's files say.
struct PretrainedInfo {
  std::string family;
  ModelConfig config;
  struct Stored {
    Index tensors = 0;
    Index bytes = 0;
  };
  std::map<std::string, Stored> stored;  // by type, as the files spell it: "F32", "Q4_1"
};
/// Reads headers only, so it takes no longer for larger files. Throws std::runtime_error like
/// load_pretrained() where the headers show that the model cannot be loaded.
RAPT_API PretrainedInfo pretrained_info(const std::string& path);

/// Loads a tokenizer alone: from a folder with a tokenizer.json, from that file or from a GGUF
/// file.
RAPT_API Tokenizer load_tokenizer(const std::string& path);

/// Called while embed_texts() works.
struct EmbedEvents {
  /// Between passes; an exception that it throws ends the work.
  std::function<void()> cancel_check = {};
  /// For every text that has more tokens than the model reads.
  std::function<void(Index text, Index tokens)> truncated = {};
};
/// One vector for each text, [texts, width]: the pooled rows, as wide as the last dense layer if
/// there is one. Texts run in parallel without padding; a text gives the same bits alone and in a
/// batch.
RAPT_API Tensor embed_texts(const Pretrained& loaded, std::span<const std::string> texts,
                            const EmbedEvents& events = {}, const Context& context = {});
/// The most tokens of a text that embed_texts() reads, special tokens included; none: no limit.
RAPT_API std::optional<Index> max_embed_tokens(const Pretrained& loaded);

/// The ids of a prompt, with the special tokens that its tokenizer adds. An empty prompt is bos, or
/// eos if there is no bos.
RAPT_API std::vector<std::int32_t> prompt_ids(const Pretrained& loaded, const std::string& text);

/// How many tokens a pretrained model was trained on at a time, if its positions have no limit, as
/// RoPE's do.
RAPT_API std::optional<Index> trained_context(const Pretrained& loaded);

/// One question in the chat format of a model. Templates are recognised by their markers and never
/// run: ChatML, Llama 3, Gemma, Llama 2, Mistral, Phi and Zephyr. `system` is the system message;
/// none: the template's default. Throws std::invalid_argument for a template of another format, a
/// system message where the format has none, and text that spells special tokens.
RAPT_API std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                            const std::optional<std::string>& system = {});
/// The token that ends an answer.
RAPT_API std::int32_t chat_stop_token(const Pretrained& loaded);
/// The text of chat_ids(), without bos.
RAPT_API std::string chat_text(const std::string& chat_template, const std::string& question,
                               const std::optional<std::string>& system = {});

struct SaveOptions {
  Type type = Type::f32;                  // weights are rounded to it
  Index max_shard_bytes = 5'000'000'000;  // a larger file is split
  ModelTokens special_tokens = {};
  std::optional<Pooling> pooling = {};  // of an encoder, for sentence-transformers
  std::optional<std::string> chat_template = {};
  std::optional<Index> model_max_length = {};  // for the tokenizer's files
  /// For the tokenizer's files; empty: with token_type_ids if the model has token types.
  std::vector<std::string> model_input_names = {};
  /// The family to write if it can express the model ("xlm-roberta"); none: the first that can.
  std::optional<std::string> family = {};
};
/// Options that keep what was loaded besides the weights.
RAPT_API SaveOptions save_options(const Pretrained& loaded);

/// Checks before long work that a folder can be made, or is there and empty. Throws
/// std::invalid_argument if it is taken, std::runtime_error if it cannot be made.
RAPT_API void check_new_folder(const std::string& folder);
/// Writes a folder that Transformers loads with from_pretrained: config.json, model.safetensors
/// and, if there is a tokenizer, tokenizer.json, its special tokens and the chat template. The
/// folder must pass check_new_folder(). Throws std::invalid_argument if no family can express the
/// model, naming the unsupported options.
RAPT_API void save_pretrained(const std::string& folder, const Transformer& model,
                              const std::optional<Tokenizer>& tokenizer,
                              const SaveOptions& options = {});

}  // namespace rapt
