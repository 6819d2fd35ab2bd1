#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/bind/bind.h"
#include "rapt/models/pretrained.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace rapt::python {
namespace {

using Ids = std::vector<std::int32_t>;

/// Checks an argument with a function of rapt._given, as models do.
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

Tokenizer load(nb::handle path) {
  const nb::object found = nb::module_::import_("rapt._find_model")
                               .attr("find_model")(path_in("Tokenizer.load: path", path));
  return load_tokenizer(nb::cast<std::string>(found));
}

Ids encode(const Tokenizer& self, nb::handle text, nb::handle add_special_tokens,
           nb::handle parse_special) {
  const EncodeOptions options{
      .add_special_tokens = flag_in("encode: add_special_tokens", add_special_tokens),
      .parse_special = flag_in("encode: parse_special", parse_special)};
  return self.encode(text_in("encode: text", text), options).ids;
}

nb::tuple encode_pair(const Tokenizer& self, nb::handle first, nb::handle second) {
  const Encoding made = self.encode_pair(text_in("encode_pair: first", first),
                                         text_in("encode_pair: second", second));
  return nb::make_tuple(made.ids, made.type_ids);
}

nb::object decode(const Tokenizer& self, nb::handle ids, nb::handle skip_special_tokens) {
  const nb::object known = checked("ids", "decode: ids", ids, self.vocab_size());
  const DecodeOptions options{.skip_special_tokens =
                                  flag_in("decode: skip_special_tokens", skip_special_tokens)};
  const std::string text = self.decode(nb::cast<Ids>(known), options);
  return nb::steal<nb::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

std::string id_to_token(const Tokenizer& self, nb::handle id) {
  const nb::object known = checked("whole", "id_to_token: id", id, 0, self.vocab_size() - 1);
  return self.id_to_token(nb::cast<std::int32_t>(known));
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer", "Text to token ids and back.")
      .def_static("load", &load, "path"_a.none(),
                  nb::sig("def load(path: str | os.PathLike) -> Tokenizer"),
                  "From a tokenizer.json, a folder, a GGUF file, or the name of a model such as "
                  "\"smollm2\".")
      .def_static("bytes", &Tokenizer::bytes, "Every byte is a token.")
      .def(
          "save",
          [](const Tokenizer& self, nb::handle path) {
            self.save(path_in("Tokenizer.save: path", path));
          },
          "path"_a.none(), nb::sig("def save(self, path: str | os.PathLike) -> None"),
          "Writes a tokenizer.json.")
      .def("encode", &encode, "text"_a.none(), "add_special_tokens"_a.none() = true,
           "parse_special"_a.none() = false,
           nb::sig("def encode(self, text: str, add_special_tokens: bool = True, parse_special: "
                   "bool = False) -> list[int]"),
           "Ids of a text. parse_special turns special tokens that the text spells out into those "
           "tokens: leave it off for untrusted text.")
      .def("encode_pair", &encode_pair, "first"_a.none(), "second"_a.none(),
           nb::sig("def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]"),
           "Ids and type ids of two texts.")
      .def("decode", &decode, "ids"_a.none(), "skip_special_tokens"_a.none() = true,
           nb::sig("def decode(self, ids: collections.abc.Sequence[int], skip_special_tokens: bool "
                   "= True) -> str"))
      .def(
          "token_to_id",
          [](const Tokenizer& self, nb::handle token) {
            return self.token_to_id(text_in("token_to_id: token", token));
          },
          "token"_a.none(), nb::sig("def token_to_id(self, token: str) -> int | None"))
      .def("id_to_token", &id_to_token, "id"_a.none(),
           nb::sig("def id_to_token(self, id: int) -> str"))
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("eos", &Tokenizer::eos)
      .def_prop_ro("pad", &Tokenizer::pad)
      .def("__len__", &Tokenizer::vocab_size)
      .def("__repr__", [](const Tokenizer& self) {
        return "<rapt.Tokenizer: " + std::to_string(self.vocab_size()) + " tokens>";
      });
}

}  // namespace rapt::python
