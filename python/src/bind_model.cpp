#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

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
  if (word == "f16") return WeightForm::f16;
  if (word == "q8_0") return WeightForm::q8_0;
  if (word == "q4_0") return WeightForm::q4_0;
  if (word == "q4_1") return WeightForm::q4_1;
  wrong_value("load: weights is \"", word,
              "\", expected stored, f32, bf16, f16, q8_0, q4_0 or q4_1");
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

/// Vectors, and the texts that were cut with how many tokens they have.
nb::tuple embed(Pretrained& self, const std::vector<std::string>& texts, const Context& context) {
  Tensor vectors;
  std::vector<std::pair<Index, Index>> cut;
  {
    const nb::gil_scoped_release release;
    vectors = embed_texts(self, texts, context, check_signals,
                          [&](Index text, Index tokens) { cut.emplace_back(text, tokens); });
  }
  return nb::make_tuple(array_of(std::move(vectors)), cut);
}

/// Ids, why they ended, and their log-probability if it was asked for.
using Written = std::tuple<Ids, std::string, std::optional<double>>;

/// Every token is shown to `token(prompt, id)` as it comes; a true answer ends the writing.
std::vector<Written> write(Pretrained& self, const std::vector<Ids>& prompts,
                           GenerateOptions options, bool chat, nb::object token,
                           const Context& context) {
  if (options.ends.empty()) options.ends = self.special.ends;
  if (chat) options.ends.push_back(chat_end(self));
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
  std::vector<Written> written;
  for (Generated& each : made)
    written.emplace_back(std::move(each.ids), text(each.finish), each.log_probability);
  return written;
}

std::string overflow_of(const GenerateOptions& options) {
  return options.overflow == GenerateOptions::Overflow::slide ? "slide" : "stop";
}
void set_overflow(GenerateOptions& options, const std::string& word) {
  if (word != "stop" && word != "slide")
    wrong_value("generate: overflow is \"", word, "\", expected \"stop\" or \"slide\"");
  options.overflow =
      word == "slide" ? GenerateOptions::Overflow::slide : GenerateOptions::Overflow::stop;
}

/// The options that Python has: their defaults are what a new object says.
void bind_generate_options(nb::module_& module) {
  using Options = GenerateOptions;
  nb::class_<Options> bound(module, "GenerateOptions");
  bound.def(nb::init<>())
      .def("most_seen", &Options::most_seen, "prompt"_a)
      .def_rw("tokens", &Options::tokens)
      .def_rw("beams", &Options::beams)
      .def_rw("log_probability", &Options::log_probability)
      .def_rw("window", &Options::context)
      .def_rw("pinned", &Options::pinned)
      .def_prop_rw("overflow", &overflow_of, &set_overflow)
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

/// Gives the names of weights that the folder does not have.
std::vector<std::string> save(const Pretrained& self, const std::string& folder,
                              const std::string& type) {
  WriteOptions options = write_options(self);
  options.type = parse_type(type);
  const nb::gil_scoped_release release;
  write_pretrained(folder, self.model, self.tokenizer, options);
  return self.left_out;
}

/// What people gave, checked by the functions that check what models are given.
template <class... Given>
nb::object checked(const char* function, const Given&... given) {
  return nb::module_::import_("rapt._given").attr(function)(given...);
}
std::string text_in(const char* where, nb::handle given) {
  return nb::cast<std::string>(checked("text", where, given));
}
std::string path_in(const char* where, nb::handle given) {
  return nb::cast<std::string>(
      checked("path", where, given, "the path of a tokenizer.json, or a name"));
}

bool flag_in(const char* where, nb::handle given) {
  return nb::cast<bool>(checked("flag", where, given));
}

nb::object decoded(const Tokenizer& self, nb::handle ids, nb::handle special) {
  const nb::object known = checked("ids", "decode: ids", ids, self.entries());
  const std::string text =
      self.decode(nb::cast<Ids>(known), DecodeOptions{flag_in("decode: special", special)});
  return nb::steal<nb::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

Tokenizer tokenizer_read(nb::handle path) {
  const std::string name = path_in("Tokenizer.read: path", path);
  const auto folders =
      nb::cast<std::vector<std::string>>(nb::module_::import_("rapt.model").attr("_packages")());
  return read_pretrained_tokenizer(find_model(name, folders));
}

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Text to numbers and back.")
      .def_static(
          "read", &tokenizer_read, "path"_a.none(),
          nb::sig("def read(path: str | os.PathLike) -> Tokenizer"),
          "A tokenizer.json, that of a folder or of a GGUF file, or of a model that a name stands "
          "for, as \"smollm2\".")
      .def_static("bytes", &Tokenizer::bytes, "Every byte is a token.")
      .def(
          "write",
          [](const Tokenizer& self, nb::handle path) {
            self.write(path_in("Tokenizer.write: path", path));
          },
          "path"_a.none(), nb::sig("def write(self, path: str | os.PathLike) -> None"))
      .def(
          "encode",
          [](const Tokenizer& self, nb::handle text, nb::handle frame, nb::handle special) {
            const EncodeOptions options{flag_in("encode: frame", frame),
                                        flag_in("encode: special", special)};
            return self.encode(text_in("encode: text", text), options).ids;
          },
          "text"_a.none(), "frame"_a.none() = true, "special"_a.none() = false,
          nb::sig("def encode(self, text: str, frame: bool = True, special: bool = False) -> "
                  "list[int]"),
          "Ids; `frame` puts the tokens around a text that models expect, `special` finds special "
          "tokens that the text spells out.")
      .def(
          "encode_pair",
          [](const Tokenizer& self, nb::handle first, nb::handle second) {
            Encoding made = self.encode_pair(text_in("encode_pair: first", first),
                                             text_in("encode_pair: second", second));
            return nb::make_tuple(made.ids, made.types);
          },
          "first"_a.none(), "second"_a.none(),
          nb::sig("def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]"),
          "Ids and types of two texts.")
      .def(
          "decode", &decoded, "ids"_a.none(), "special"_a.none() = false,
          nb::sig(
              "def decode(self, ids: collections.abc.Sequence[int], special: bool = False) -> str"))
      .def(
          "id_of",
          [](const Tokenizer& self, nb::handle token) {
            return self.id_of(text_in("id_of: token", token));
          },
          "token"_a.none(), nb::sig("def id_of(self, token: str) -> int | None"))
      .def(
          "spelling_of",
          [](const Tokenizer& self, nb::handle id) {
            const nb::object known = checked("whole", "spelling_of: id", id, 0, self.entries() - 1);
            return self.spelling_of(nb::cast<std::int32_t>(known));
          },
          "id"_a.none(), nb::sig("def spelling_of(self, id: int) -> str"))
      .def("__len__", &Tokenizer::entries)
      .def("__repr__", [](const Tokenizer& self) {
        return "<rapt.Tokenizer: " + std::to_string(self.entries()) + " tokens>";
      });
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
      .def_prop_ro("embed_limit", &embed_limit)
      .def_prop_ro("made_for", &made_for)
      .def_prop_ro("has_chat_template",
                   [](const Pretrained& self) { return !self.chat_template.empty(); })
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
      .def("_generate", &write, "prompts"_a, "options"_a, "chat"_a, "token"_a.none(), "context"_a)
      .def("_prompt",
           [](const Pretrained& self, const std::string& text) { return prompt_ids(self, text); })
      .def(
          "_chat",
          [](const Pretrained& self, const std::string& question,
             const std::optional<std::string>& system) { return chat_ids(self, question, system); },
          "question"_a, "system"_a.none())
      .def("_save", &save);
  module.def("load", &opened, "path"_a, "weights"_a, "folders"_a, "allow_non_finite"_a);
  module.def("find_model", &find_model, "name"_a, "folders"_a = std::vector<std::string>());
}

}  // namespace rapt::python
