#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "python/src/answer.h"
#include "python/src/bind.h"
#include "python/src/mistake.h"
#include "rapt/generate.h"
#include "rapt/pretrained.h"
#include "rapt/train.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

using Ids = std::vector<std::int32_t>;
using NumpyArray = nb::ndarray<nb::numpy, float>;

/// Numbers that move into an array of numpy's.
nb::object array_of(Tensor tensor) {
  std::vector<std::size_t> shape;
  for (Index i = 0; i < tensor.shape().rank(); ++i)
    shape.push_back(static_cast<std::size_t>(tensor.shape()[i]));
  auto* kept = new Tensor(std::move(tensor));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  return NumpyArray(kept->data(), shape.size(), shape.data(), owner).cast();
}

WeightForm form_of(const std::string& word) {
  if (word == "stored") return WeightForm::stored;
  if (word == "f32") return WeightForm::f32;
  if (word == "bf16") return WeightForm::bf16;
  if (word == "q8_0") return WeightForm::q8_0;
  if (word == "q4_0") return WeightForm::q4_0;
  if (word == "q4_1") return WeightForm::q4_1;
  wrong_value("load: weights is \"", word, "\", expected stored, f32, bf16, q8_0, q4_0 or q4_1");
}

Pretrained opened(const std::string& name, const std::string& weights,
                  const std::vector<std::string>& folders, bool allow_non_finite) {
  const LoadOptions options{form_of(weights), allow_non_finite};
  const nb::gil_scoped_release release;
  const std::string path = find_model(name, folders);
  if (!is_run_folder(path)) return read_pretrained(path, options);
  return as_pretrained(load_run(path));
}

/// Ctrl-C while the lock is released.
void check_signals() {
  const nb::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Sequences of ids, one after the other.
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
    rows = Tape::take(sources ? self.model.forward(tape, tokens_of(sequences), tokens_of(*sources))
                              : self.model.forward(tape, tokens_of(sequences)));
    if (logits) rows = self.model.logits(rows, context);
  }
  return array_of(std::move(rows));
}

nb::object embed(Pretrained& self, const std::vector<std::string>& texts, const Context& context) {
  Tensor vectors;
  {
    const nb::gil_scoped_release release;
    vectors = embed_texts(self, texts, context, check_signals);
  }
  return array_of(std::move(vectors));
}

/// Every token is shown to `token(prompt, id)` as it comes; a true answer ends the writing.
std::vector<Ids> write(Pretrained& self, const std::vector<Ids>& prompts, GenerateOptions options,
                       nb::object token, const Context& context) {
  if (options.ends.empty()) options.ends = self.special.ends;
  if (self.tokenizer && options.entries == 0) options.entries = self.tokenizer->entries();
  options.start = self.special.decoder_start.value_or(self.special.padding.value_or(0));
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
  std::vector<Ids> ids;
  for (Generated& each : made) ids.push_back(std::move(each.ids));
  return ids;
}

/// The options that Python has: their defaults are what a new object says.
void bind_generate_options(nb::module_& module) {
  using Options = GenerateOptions;
  nb::class_<Options> bound(module, "GenerateOptions");
  bound.def(nb::init<>())
      .def_rw("tokens", &Options::tokens)
      .def_rw("beams", &Options::beams)
      .def_prop_rw(
          "cache", [](const Options& self) { return text(self.cache); },
          [](Options& self, const std::string& word) { self.cache = parse_cache_type(word); });
  const auto add = [&]<class T>(const char* name, T Sampling::*field) {
    bound.def_prop_rw(
        name, [field](const Options& self) { return self.sampling.*field; },
        [field](Options& self, T value) { self.sampling.*field = value; });
  };
  add("temperature", &Sampling::temperature);
  add("top_k", &Sampling::top_k);
  add("top_p", &Sampling::top_p);
  add("min_p", &Sampling::min_p);
  add("repetition", &Sampling::repetition);
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

/// Asked before anything is unpacked. numpy has no bf16 of its own.
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
                "or ask for parameters(\"torch\"), or load the model with weights=\"f32\"");
}

template <class Framework>
nb::object view_of(Tensor& numbers, nb::dlpack::dtype type, nb::handle owner) {
  std::vector<std::size_t> shape;
  for (Index i = 0; i < numbers.shape().rank(); ++i)
    shape.push_back(static_cast<std::size_t>(numbers.shape()[i]));
  return nb::ndarray<Framework>(numbers.memory(), shape.size(), shape.data(), owner, nullptr, type)
      .cast();
}

nb::object numpy_view(Tensor& numbers, nb::handle owner) {
  if (numbers.type() != Type::bf16)
    return view_of<nb::numpy>(numbers, dtype_of(numbers.type()), owner);
  const nb::object type = nb::module_::import_("ml_dtypes").attr("bfloat16");
  return view_of<nb::numpy>(numbers, nb::dtype<std::uint16_t>(), owner).attr("view")(type);
}

/// Views of the numbers themselves; the model lives as long as they do. None: in few bits, which no
/// array has.
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

void save(const Pretrained& self, const std::string& folder, const std::string& type) {
  WriteOptions options = write_options(self);
  options.type = parse_type(type);
  const nb::gil_scoped_release release;
  write_pretrained(folder, self.model, self.tokenizer, options);
}

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Text to numbers and back.")
      .def_static("read", &Tokenizer::read, "path"_a, "A tokenizer.json.")
      .def_static("bytes", &Tokenizer::bytes, "Every byte is a token.")
      .def("write", &Tokenizer::write, "path"_a)
      .def(
          "encode",
          [](const Tokenizer& self, const std::string& text, bool frame, bool special) {
            return self.encode(text, EncodeOptions{frame, special}).ids;
          },
          "text"_a, "frame"_a = true, "special"_a = false,
          "Ids; `frame` puts the tokens around a text that models expect, `special` finds special "
          "tokens that the text spells out.")
      .def(
          "encode_pair",
          [](const Tokenizer& self, const std::string& first, const std::string& second) {
            Encoding made = self.encode_pair(first, second);
            return nb::make_tuple(made.ids, made.types);
          },
          "first"_a, "second"_a, "Ids and types of two texts.")
      .def(
          "decode",
          [](const Tokenizer& self, const Ids& ids, bool special) {
            const std::string text = self.decode(ids, DecodeOptions{special});
            return nb::steal<nb::object>(
                PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
          },
          "ids"_a, "special"_a = false)
      .def("id_of", &Tokenizer::id_of, "token"_a)
      .def("spelling_of", &Tokenizer::spelling_of, "id"_a)
      .def("__len__", &Tokenizer::entries);
}

}  // namespace

void bind_model(nb::module_& module) {
  bind_tokenizer(module);
  bind_generate_options(module);
  nb::class_<Pretrained>(module, "Model")
      .def_ro("family", &Pretrained::family)
      .def_ro("notices", &Pretrained::notices)
      .def_prop_ro("tokenizer", [](const Pretrained& self) { return self.tokenizer; })
      .def_prop_ro("width", [](const Pretrained& self) { return self.model.config().width; })
      .def_prop_ro("vocabulary",
                   [](const Pretrained& self) { return self.model.config().vocabulary; })
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
      .def("_generate", &write, "prompts"_a, "options"_a, "token"_a.none(), "context"_a)
      .def("_prompt",
           [](const Pretrained& self, const std::string& text) { return prompt_ids(self, text); })
      .def("_save", &save);
  module.def("load", &opened, "path"_a, "weights"_a, "folders"_a, "allow_non_finite"_a);
  module.def("find_model", &find_model, "name"_a, "folders"_a = std::vector<std::string>());
}

}  // namespace rapt::python
