#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rapt/model.h"
#include "rapt/tokenizer.h"

namespace rapt {

/// Tokens that mean something to a model, as its files say; where they say nothing, none.
struct ModelTokens {
  std::optional<std::int32_t> begin;  // stands before a text
  std::vector<std::int32_t> ends;     // any of them ends one
  std::optional<std::int32_t> padding;
  std::optional<std::int32_t> decoder_start;  // what the decoder of an encoder-decoder starts with
};

/// A layer that a pooled row goes through: activation(weight · row + bias).
struct Dense {
  enum class Activation { identity, tanh };
  Index in = 0, out = 0;
  std::vector<float> weight = {};  // [out, in]
  std::vector<float> bias = {};    // [out], or none
  Activation activation = Activation::identity;
};

/// How rows of an encoder become one vector for a text, as sentence-transformers folders say.
struct Pooling {
  enum class Kind { mean, first };
  Kind kind = Kind::mean;
  std::vector<Dense> dense = {};  // what the pooled row goes through, in this order
  bool normalized = false;        // in the end, to length 1
  Index max_tokens = 0;           // longer texts are cut; 0: where positions end
};

/// A model that others trained.
struct Pretrained {
  std::string family;  // "llama", "bert", ...; "rapt": a run of rapt train
  Transformer model;
  std::optional<Tokenizer> tokenizer;
  ModelTokens special = {};
  Pooling pooling = {};                   // the mean, unless the files say otherwise
  std::string chat_template = {};         // as the files have it; "": none
  std::vector<std::string> notices = {};  // what the user should know, but what stops nobody
  Index tokenizer_max_tokens = 0;  // model_max_length, as the tokenizer's files say; 0: nothing
  std::vector<std::string> tokenizer_inputs = {};  // model_input_names, as they say; empty: nothing
  /// Weights in the files that nothing is computed with here, so that they are not written either.
  std::vector<std::string> left_out = {};
};

/// What the matrices of a model become as it is read.
enum class WeightForm {
  stored,  // few bits stay few bits, bf16 and f16 stay what they are, all else becomes f32
  f32,
  bf16,  // half the memory of f32; where the CPU multiplies bf16, activations are rounded as well
  f16,   // half the memory of f32; numbers beyond 65504 are refused
  q8_0,
  q4_0,
  q4_1,
};

struct LoadOptions {
  WeightForm weights = WeightForm::stored;
  bool allow_non_finite = false;  // weights that are infinite or NaN; otherwise they are refused
};

/// Reads a folder with config.json, model.safetensors (or several, with an index) and
/// tokenizer.json, as Hugging Face's save_pretrained writes them, or a GGUF file. Every tensor is
/// checked by name, shape and for numbers that are not finite. Throws std::runtime_error naming
/// what is missing, unknown, mis-shaped or not finite.
RAPT_API Pretrained read_pretrained(const std::string& path, const LoadOptions& options = {});
/// What headers say of a model.
struct PretrainedOutline {
  std::string family;
  ModelConfig config;
  struct Stored {
    Index tensors = 0;
    Index bytes = 0;
  };
  std::map<std::string, Stored> stored;  // by type, as the files spell it: "F32", "Q4_1"
};
/// Reads headers only, so it takes no longer for a larger file. Throws std::runtime_error like
/// read_pretrained where the headers show that the model cannot be read.
RAPT_API PretrainedOutline outline_pretrained(const std::string& path);
/// The tokenizer alone: of a folder with a tokenizer.json, of that file itself or of a GGUF file.
RAPT_API Tokenizer read_pretrained_tokenizer(const std::string& path);

/// Where a model is: the path itself if there is one, else a folder or file of that name in the
/// folders of $RAPT_MODELS, else one that an installed Python package carries ("minilm",
/// "smollm2"); `folders` are where to look for packages first. Throws std::runtime_error saying
/// where it was looked for and what to install.
RAPT_API std::string find_model(const std::string& name,
                                const std::vector<std::string>& folders = {});

/// One vector for each text, [texts, width], as `pooling` says; behind dense layers as wide as the
/// last of them. Texts are read side by side and none is padded; a text gives the same vector, bit
/// for bit, alone and in a batch. `pause` is called between passes; what it throws ends the work.
/// `cut` is told of every text that has more tokens than the model reads: which one, and how many.
RAPT_API Tensor embed_texts(const Pretrained& loaded, std::span<const std::string> texts,
                            const Context& context = {}, const std::function<void()>& pause = {},
                            const std::function<void(Index text, Index tokens)>& cut = {});
/// The most tokens of a text that embed_texts reads, those of its frame among them; 0: any number.
RAPT_API Index embed_limit(const Pretrained& loaded);

/// A text as the model expects to go on from it: with the tokens around it that its tokenizer has
/// for that. An empty one is the token that texts begin with, or else the one that ends them.
RAPT_API std::vector<std::int32_t> prompt_ids(const Pretrained& loaded, const std::string& text);

/// How many tokens a model of others was made for whose positions go on beyond them, as RoPE's do;
/// 0: they end by themselves, or nothing is said of it.
RAPT_API Index made_for(const Pretrained& loaded);

/// A question as a model that was trained to chat expects it. Templates are recognised by their
/// marks and written by rapt itself, never run: ChatML, Llama 3, Gemma, Llama 2, Mistral, Phi and
/// Zephyr. `system` is what the model is told first; without it, what the template says. Throws
/// std::invalid_argument for a template of another form, a system text where the form has none, and
/// words that spell tokens.
RAPT_API std::vector<std::int32_t> chat_ids(const Pretrained& loaded, const std::string& question,
                                            const std::optional<std::string>& system = {});
/// The token that ends what such a model says.
RAPT_API std::int32_t chat_end(const Pretrained& loaded);
/// The text of chat_ids, without the token that begins it.
RAPT_API std::string chat_text(const std::string& chat_template, const std::string& question,
                               const std::optional<std::string>& system = {});

struct WriteOptions {
  Type type = Type::f32;              // what numbers are rounded to
  Index shard_bytes = 5'000'000'000;  // a file that would be larger becomes several
  ModelTokens tokens = {};
  std::optional<Pooling> pooling = {};  // of an encoder: sentence-transformers reads it
  std::string chat_template = {};       // as it is; "": none
  Index tokenizer_max_tokens = 0;       // model_max_length of the tokenizer; 0: none
  /// model_input_names of the tokenizer; empty: as the model has token types or not.
  std::vector<std::string> tokenizer_inputs = {};
  /// Whose model it should be ("xlm-roberta"), if that family can say all of it; "": of the
  /// likeliest that can.
  std::string family = {};
};
/// Options that keep all that was read beside the weights of a model.
RAPT_API WriteOptions write_options(const Pretrained& loaded);

/// Whether a folder can be made, or is there and empty: asked before minutes of work. Throws
/// std::invalid_argument if something is there already, std::runtime_error if it cannot be made.
RAPT_API void check_new_folder(const std::string& folder);
/// Writes a folder that Transformers loads with from_pretrained: config.json, model.safetensors
/// and, if there is a tokenizer, tokenizer.json, its special tokens and the chat template. The
/// folder is one for check_new_folder(). Throws std::invalid_argument if no family of models is
/// like this one, naming what stands in the way.
RAPT_API void write_pretrained(const std::string& folder, const Transformer& model,
                               const std::optional<Tokenizer>& tokenizer,
                               const WriteOptions& options = {});

}  // namespace rapt
