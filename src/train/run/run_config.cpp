#include "train/run/run_config.h"

#include <cmath>
#include <sstream>

#include "base/check.h"
#include "formats/config/field_visitors.h"
#include "formats/config/toml.h"
#include "model/config/config_io.h"
#include "model/config/renamed_keys.h"
#include "train/run/run_fields.h"

namespace rapt {
using namespace detail;
namespace {

void check_options(const TrainOptions& o) {
  const auto need = [](bool ok, const char* name, double number, const char* expected) {
    check(ok, "train.", name, " is ", number, ", expected ", expected);
  };
  const auto count = [](const char* name, Index number, Index least) {
    check(number >= least, "train.", name, " is ", number, ", expected at least ", least);
  };
  const auto count_or_none = [](const char* name, std::optional<Index> number) {
    check(number.value_or(1) >= 1, "train.", name, " is ", number.value_or(1),
          ", expected at least 1, or \"none\"");
  };
  count("steps", o.steps, 1);
  count("accumulation_steps", o.accumulation_steps, 1);
  need(o.accumulation_steps <= 65536, "accumulation_steps",
       static_cast<double>(o.accumulation_steps), "at most 65536");
  count("log_every", o.log_every, 1);
  count_or_none("evaluate_every", o.evaluate_every);
  count_or_none("save_every", o.save_every);
  count("keep_checkpoints", o.keep_checkpoints, 2);
  count_or_none("patience", o.patience);
  need(o.max_grad_norm.value_or(1) > 0, "max_grad_norm", o.max_grad_norm.value_or(1),
       "more than 0, or \"none\"");
  need(o.label_smoothing >= 0 && o.label_smoothing < 1, "label_smoothing", o.label_smoothing,
       "0 to less than 1");
  const double target = o.target_accuracy.value_or(1);
  need(target > 0 && target <= 1, "target_accuracy", target,
       "more than 0 and at most 1, or \"none\"");
}

/// section.key=value into the object, the value in TOML's spelling; anything else is a text, so
/// that a command line needs no quotes.
void set(Json& object, const std::string& text) {
  const auto equals = text.find('=');
  const auto dot = text.find('.');
  check(equals != std::string::npos && dot != std::string::npos && dot < equals, "set ", text,
        ": expected section.key=value");
  const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1);
  const std::string value = text.substr(equals + 1);
  Json parsed = value;
  try {
    parsed = parse_toml("value = " + value, "set " + text).at("value");
  } catch (const std::runtime_error&) {
    // Not a TOML value: taken as it is written.
  }
  Json& place = object[section];
  check(place.is_null() || place.is_object(), "set ", text, ": ", section, " is ", place.dump(),
        " in the file, expected a section");
  place[key] = parsed;
}

std::string toml_of(const Json& value) {
  if (value.is_number_float()) {
    std::string text = value.dump();
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  if (!value.is_array()) return value.dump();
  std::string text = "[";
  for (std::size_t i = 0; i < value.size(); ++i) text += (i == 0 ? "" : ", ") + toml_of(value[i]);
  return text + "]";
}

/// What is none is left out, unless its default is something else: TOML has no null.
void write_section(std::ostream& out, const std::string& name, const Json& object,
                   const Json& defaults) {
  out << '[' << name << "]\n";
  for (const auto& [key, value] : object.items()) {
    const bool absent = value.is_null() && defaults.value(key, Json()).is_null();
    if (value.is_object() || absent) continue;
    out << key << " = " << toml_of(value.is_null() ? Json(no_value) : value) << '\n';
  }
  for (const auto& [key, value] : object.items())
    if (value.is_object()) {
      out << '\n';
      write_section(out, name + '.' + key, value, Json::object());
    }
}

/// A section, none of whose keys may be unknown.
template <class Read>
void read_section(Fields& all, const char* name, const Read& read) {
  Fields fields = all.object(name);
  fields.refuse_renamed(renamed_keys);
  FieldReader reader(fields);
  read(reader);
  fields.done();
}

}  // namespace

void detail::check_train_options(const TrainOptions& options) {
  check_options(options);
  learning_rate_at(options, 0);  // refuses what makes no sense
}

RunConfig detail::run_config_from(const Json& object, const std::string& source) {
  Fields fields(object, source);
  RunConfig config;
  config.model = model_config_from(fields.object("model"), config.model);
  read_section(fields, "data", [&](auto& read) { visit_data_fields(config.data, read); });
  read_section(fields, "tokenizer",
               [&](auto& read) { visit_tokenizer_fields(config.tokenizer, read); });
  read_section(fields, "train", [&](auto& read) { visit_train_fields(config.train, read); });
  fields.done();
  check_train_options(config.train);
  return config;
}

Json detail::to_json(const RunConfig& config) {
  FieldWriter data, tokenizer, train;
  visit_data_fields(config.data, data);
  visit_tokenizer_fields(config.tokenizer, tokenizer);
  visit_train_fields(config.train, train);
  return {{"model", to_json(config.model)},
          {"data", data.object},
          {"tokenizer", tokenizer.object},
          {"train", train.object}};
}

RunConfig read_run_config(const std::optional<std::string>& path,
                          std::span<const std::string> sets) {
  Json object = path ? read_toml(*path) : Json::object();
  for (const std::string& text : sets) set(object, text);
  return run_config_from(object, path.value_or("run"));
}

std::string to_toml(const RunConfig& config) {
  std::ostringstream out;
  const Json object = to_json(config), defaults = to_json(RunConfig());
  for (const char* section : {"model", "data", "tokenizer", "train"}) {
    write_section(out, section, object.at(section), defaults.at(section));
    out << '\n';
  }
  return out.str();
}

}  // namespace rapt
