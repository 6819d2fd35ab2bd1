#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "python/src/bind/bind.h"
#include "python/src/convert/errors.h"
#include "python/src/convert/result_array.h"
#include "rapt/models/generate.h"
#include "rapt/models/pretrained.h"
#include "rapt/models/train.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

using Ids = std::vector<std::int32_t>;
using NumpyArray = nb::ndarray<nb::numpy, float>;

std::vector<std::size_t> shape_of(const Tensor& tensor) {
  std::vector<std::size_t> shape;
  for (Index i = 0; i < tensor.shape().rank(); ++i)
    shape.push_back(static_cast<std::size_t>(tensor.shape()[i]));
  return shape;
}

/// Moves numbers into a numpy array.
nb::object array_of(Tensor tensor) {
  const std::vector<std::size_t> shape = shape_of(tensor);
  auto* kept = new Tensor(std::move(tensor));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return NumpyArray(kept->data(), shape.size(), shape.data(), owner).cast();
}

Pretrained load(const std::string& path, const std::string& weight_type, bool allow_non_finite) {
  const LoadOptions options{from_string<WeightType>(weight_type), allow_non_finite};
  const nb::gil_scoped_release release;
  if (!is_run_folder(path)) return load_pretrained(path, options);
  return as_pretrained(load_run(path));
}

/// Ctrl-C while the lock is released.
void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Contiguous sequences of ids.
Tokens tokens_of(const std::vector<Ids>& sequences) {
  Tokens tokens;
  for (const Ids& ids : sequences) {
    tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
    tokens.lengths.push_back(static_cast<Index>(ids.size()));
  }
  return tokens;
}

nb::object forward(Pretrained& self, const std::vector<Ids>& sequences,
                   const std::optional<std::vector<Ids>>& sources, bool logits,
                   const Context& context) {
  Tensor rows;
  {
    const nb::gil_scoped_release release;
    Tape tape(Tape::Mode::forward, context);
    rows =
        Tape::release(sources ? self.model.forward(tape, tokens_of(sequences), tokens_of(*sources))
                              : self.model.forward(tape, tokens_of(sequences)));
    if (logits) rows = self.model.logits(rows, context);
  }
  return array_of(std::move(rows));
}

/// Vectors, and the truncated texts with their token counts.
nb::tuple embed(Pretrained& self, const std::vector<std::string>& texts, const Context& context) {
  Tensor vectors;
  std::vector<std::pair<Index, Index>> truncated;
  EmbedEvents events;
  events.cancel_check = check_signals;
  events.truncated = [&](Index text, Index tokens) { truncated.emplace_back(text, tokens); };
  {
    const nb::gil_scoped_release release;
    vectors = embed_texts(self, texts, events, context);
  }
  return nb::make_tuple(array_of(std::move(vectors)), truncated);
}

/// Ids, the finish reason, and the log-probability if requested.
using Answer = std::tuple<Ids, std::string, std::optional<double>>;

/// Calls `token(prompt, id)` for every token; if it returns true, generation ends.
std::vector<Answer> generate(Pretrained& self, const std::vector<Ids>& prompts,
                             GenerateOptions options, bool chat, nb::object token,
                             const Context& context) {
  const ModelTokens& special = self.special_tokens;
  options.stop_tokens = special.eos;
  if (chat) options.stop_tokens.push_back(chat_stop_token(self));
  if (self.tokenizer) options.vocab_size = self.tokenizer->vocab_size();
  options.decoder_start_token = special.decoder_start.value_or(special.pad.value_or(0));
  bool ended = false;
  GenerateEvents events;
  events.token = [&](Index prompt, std::int32_t id) {
    const nb::gil_scoped_acquire acquire;
    if (token.is_none()) return;
    const nb::object answer = token(prompt, id);
    const int yes = PyObject_IsTrue(answer.ptr());
    if (yes < 0) throw nb::python_error();
    if (yes > 0) ended = true;
  };
  events.cancelled = [&] {
    check_signals();
    return ended;
  };
  std::vector<Generated> made;
  {
    const nb::gil_scoped_release release;
    made = rapt::generate(self.model, prompts, options, events, context);
  }
  std::vector<Answer> answers;
  for (Generated& each : made)
    answers.emplace_back(std::move(each.ids), to_string(each.finish_reason), each.log_probability);
  return answers;
}

/// A property that is a word in Python.
template <class Enum>
auto word_of(Enum GenerateOptions::*field) {
  return [field](const GenerateOptions& self) { return to_string(self.*field); };
}
template <class Enum>
auto set_word(Enum GenerateOptions::*field) {
  return [field](GenerateOptions& self, const std::string& word) {
    self.*field = from_string<Enum>(word);
  };
}

/// Python's defaults are those of a new object.
void bind_generate_options(nb::module_& module) {
  using Options = GenerateOptions;
  nb::class_<Options> bound(module, "GenerateOptions");
  bound.def(nb::init<>())
      .def("max_context", &Options::max_context, "prompt_tokens"_a)
      .def_rw("max_new_tokens", &Options::max_new_tokens)
      .def_rw("num_beams", &Options::num_beams)
      .def_rw("length_penalty", &Options::length_penalty)
      .def_rw("log_probability", &Options::log_probability)
      .def_rw("context_size", &Options::context_size, nb::arg().none())
      .def_rw("pinned", &Options::pinned)
      .def_prop_rw("overflow", word_of(&Options::overflow), set_word(&Options::overflow))
      .def_prop_rw("cache_type", word_of(&Options::cache_type), set_word(&Options::cache_type));
  const auto add = [&]<class T>(const char* name, T Sampling::*field) {
    bound.def_prop_rw(
        name, [field](const Options& self) { return self.sampling.*field; },
        [field](Options& self, T value) { self.sampling.*field = value; }, nb::arg().none());
  };
  add("temperature", &Sampling::temperature);
  add("top_k", &Sampling::top_k);
  add("top_p", &Sampling::top_p);
  add("min_p", &Sampling::min_p);
  add("repetition_penalty", &Sampling::repetition_penalty);
  add("repetition_window", &Sampling::repetition_window);
  add("seed", &Sampling::seed);
}

bool installed(const char* module) {
  try {
    nb::module_::import_(module);
    return true;
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
  }
  return false;
}

/// Checked before anything is unpacked. numpy has no bf16 of its own.
void check_framework(const std::string& framework, std::span<const Parameter> parameters) {
  if (framework != "numpy" && framework != "torch")
    wrong_value("parameters: framework is \"", framework, "\", expected \"numpy\" or \"torch\"");
  if (!installed(framework.c_str()))
    wrong_value("parameters: framework is \"", framework,
                "\", which is not installed: install it, or ask for the other of \"numpy\" and "
                "\"torch\"");
  const auto narrow =
      std::find_if(parameters.begin(), parameters.end(),
                   [](const Parameter& parameter) { return parameter.type() == Type::bf16; });
  if (framework == "numpy" && narrow != parameters.end() && !installed("ml_dtypes"))
    wrong_value("parameters: ", narrow->name,
                " is bf16, which numpy knows only with ml_dtypes: install that, ",
                "or ask for parameters(\"torch\"), or load the model with weight_type=\"f32\"");
}

template <class Framework>
nb::object view_of(Tensor& numbers, nb::dlpack::dtype type, nb::handle owner) {
  const std::vector<std::size_t> shape = shape_of(numbers);
  return nb::ndarray<Framework>(numbers.memory(), shape.size(), shape.data(), owner, nullptr, type)
      .cast();
}

nb::object numpy_view(Tensor& numbers, nb::handle owner) {
  if (numbers.type() != Type::bf16)
    return view_of<nb::numpy>(numbers, dtype_of(numbers.type()), owner);
  const nb::object type = nb::module_::import_("ml_dtypes").attr("bfloat16");
  return view_of<nb::numpy>(numbers, nb::dtype<std::uint16_t>(), owner).attr("view")(type);
}

/// Views of the model's memory, which keep the model alive. None: quantized.
nb::dict parameters(nb::handle self, const std::string& framework) {
  Pretrained& loaded = nb::cast<Pretrained&>(self);
  check_framework(framework, loaded.model.parameters());
  loaded.model.unpack();
  nb::dict views;
  for (Parameter& parameter : loaded.model.parameters()) {
    nb::object view = nb::none();
    if (parameter.quantized.empty())
      view = framework == "numpy"
                 ? numpy_view(parameter.value, self)
                 : view_of<nb::pytorch>(parameter.value, dtype_of(parameter.value.type()), self);
    views[parameter.name.c_str()] = view;
  }
  return views;
}

/// Returns the names of tensors that are not in the folder.
std::vector<std::string> save(const Pretrained& self, const std::string& folder,
                              const std::string& type) {
  SaveOptions options = save_options(self);
  options.type = from_string<Type>(type);
  const nb::gil_scoped_release release;
  save_pretrained(folder, self.model, self.tokenizer, options);
  return self.unused_tensors;
}

}  // namespace

void bind_model(nb::module_& module) {
  bind_generate_options(module);
  nb::class_<Pretrained>(module, "Model")
      .def_ro("family", &Pretrained::family)
      .def_ro("warnings", &Pretrained::warnings)
      .def_prop_ro("tokenizer", [](const Pretrained& self) { return self.tokenizer; })
      .def_prop_ro("hidden_size",
                   [](const Pretrained& self) { return self.model.config().hidden_size; })
      .def_prop_ro("vocab_size",
                   [](const Pretrained& self) { return self.model.config().vocab_size; })
      .def_prop_ro("max_embed_tokens", &max_embed_tokens)
      .def_prop_ro("trained_context", &trained_context)
      .def_prop_ro("has_chat_template",
                   [](const Pretrained& self) { return self.chat_template.has_value(); })
      .def_prop_ro("count", [](const Pretrained& self) { return self.model.count(); })
      .def("refresh", [](Pretrained& self) { self.model.refresh(); })
      .def("pack",
           [](Pretrained& self, const Context& context) {
             const nb::gil_scoped_release release;
             self.model.pack(context);
           })
      .def("unpack", [](Pretrained& self) { self.model.unpack(); })
      .def("parameters", &parameters, "framework"_a)
      .def("_forward", &forward)
      .def("_embed", &embed)
      .def("_generate", &generate, "prompts"_a, "options"_a, "chat"_a, "token"_a.none(),
           "context"_a)
      .def("_prompt",
           [](const Pretrained& self, const std::string& text) { return prompt_ids(self, text); })
      .def(
          "_chat",
          [](const Pretrained& self, const std::string& question,
             const std::optional<std::string>& system) { return chat_ids(self, question, system); },
          "question"_a, "system"_a.none())
      .def("_save", &save);
  module.def("load", &load, "path"_a, "weight_type"_a, "allow_non_finite"_a);
}

}  // namespace rapt::python
