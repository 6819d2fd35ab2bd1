#include "train/run/run_config.h"

#include <cmath>
#include <sstream>

#include "base/check.h"
#include "formats/config/field_visitors.h"
#include "formats/config/toml.h"
#include "model/config_io.h"
#include "train/run/run_fields.h"

namespace rapt {
namespace {

void check_train(const TrainOptions& o) {
  const auto need = [](bool ok, const char* name, double number, const char* expected) {
    check(ok, "train.", name, " is ", number, ", expected ", expected);
  };
  const auto count = [&](const char* name, Index number, Index least) {
    check(number >= least, "train.", name, " is ", number, ", expected at least ", least);
  };
  count("steps", o.steps, 1);
  count("accumulate", o.accumulate, 1);
  need(o.accumulate <= 65536, "accumulate", static_cast<double>(o.accumulate), "at most 65536");
  count("log_every", o.log_every, 1);
  count("evaluate_every", o.evaluate_every, 0);
  count("save_every", o.save_every, 0);
  count("keep", o.keep, 2);
  count("patience", o.patience, 0);
  need(o.clip >= 0, "clip", o.clip, "0 (none) or more");
  need(o.label_smoothing >= 0 && o.label_smoothing < 1, "label_smoothing", o.label_smoothing,
       "0 to less than 1");
  need(o.until >= 0 && o.until <= 1, "until", o.until, "0 to 1");
}

/// section.key=value into the object, the value in TOML's spelling; what is no value there is a
/// text, so that quotes are not needed on a command line.
void set(Json& object, const std::string& text) {
  const auto equals = text.find('=');
  const auto dot = text.find('.');
  check(equals != std::string::npos && dot != std::string::npos && dot < equals, "--set ", text,
        ": expected section.key=value");
  const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1);
  const std::string value = text.substr(equals + 1);
  Json parsed = value;
  try {
    parsed = parse_toml("value = " + value, "--set " + text).at("value");
  } catch (const std::runtime_error&) {
    // Not a TOML value: taken as it is written.
  }
  Json& place = object[section];
  check(place.is_null() || place.is_object(), "--set ", text, ": ", section, " is ", place.dump(),
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

void write_section(std::ostream& out, const std::string& name, const Json& object) {
  out << '[' << name << "]\n";
  for (const auto& [key, value] : object.items())
    if (!value.is_object()) out << key << " = " << toml_of(value) << '\n';
  for (const auto& [key, value] : object.items())
    if (value.is_object()) {
      out << '\n';
      write_section(out, name + '.' + key, value);
    }
}

}  // namespace

RunConfig run_config_from(const Json& object, const std::string& source) {
  Fields fields(object, source);
  RunConfig config;
  config.model.vocabulary = 0;  // that of the data
  config.model = model_config_from(fields.object("model"), config.model);
  Fields data = fields.object("data");
  FieldReader<Words> read_data(data);
  visit_data_fields(config.data, read_data);
  data.done();
  Fields tokenizer = fields.object("tokenizer");
  FieldReader<Words> read_tokenizer(tokenizer);
  visit_tokenizer_fields(config.tokenizer, read_tokenizer);
  tokenizer.done();
  Fields train = fields.object("train");
  FieldReader<Words> read_train(train);
  visit_train_fields(config.train, read_train);
  train.done();
  fields.done();
  check_train(config.train);
  config.train.schedule.steps = config.train.steps;
  learning_rate_at(config.train.schedule, 0);  // refuses what makes no sense
  config.train.optimizer.learning_rate = config.train.schedule.peak;
  return config;
}

Json to_json(const RunConfig& config) {
  FieldWriter<Words> data, tokenizer, train;
  visit_data_fields(config.data, data);
  visit_tokenizer_fields(config.tokenizer, tokenizer);
  visit_train_fields(config.train, train);
  return {{"model", to_json(config.model)},
          {"data", data.object},
          {"tokenizer", tokenizer.object},
          {"train", train.object}};
}

RunConfig read_run_config(const std::string& path, std::span<const std::string> sets) {
  Json object = path.empty() ? Json::object() : read_toml(path);
  for (const std::string& text : sets) set(object, text);
  return run_config_from(object, path.empty() ? "run" : path);
}

std::string to_toml(const RunConfig& config) {
  std::ostringstream out;
  const Json object = to_json(config);
  for (const char* section : {"model", "data", "tokenizer", "train"}) {
    write_section(out, section, object.at(section));
    out << '\n';
  }
  return out.str();
}

}  // namespace rapt
