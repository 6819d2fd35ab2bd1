#include "text/tokenizer/post_processor.h"

#include "base/io/check_input.h"
#include "formats/config/fields.h"

namespace rapt::detail {
namespace {

bool is_id(const Json& value, Index vocab_size) {
  return value.is_number_integer() && value.get<Index>() >= 0 && value.get<Index>() < vocab_size;
}

}  // namespace

PostProcessor::PostProcessor()
    : single_{{Content::first, {}, 0}}, pair_{{Content::first, {}, 0}, {Content::second, {}, 1}} {}

PostProcessor::PostProcessor(const Json& part, const std::string& source, Index vocab_size)
    : PostProcessor() {
  if (!part.is_null()) read(part, source, vocab_size);
}

void PostProcessor::read(const Json& part, const std::string& source, Index vocab_size) {
  Fields fields(part, source, "post_processor");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const Json& list = fields.value("processors");
    check_input(list.is_array(), source, ": post_processor.processors is not a list");
    for (const Json& inner : list) read(inner, source, vocab_size);
    return;
  }
  if (type == "ByteLevel") return;  // corrects offsets into the text, which rapt does not report
  check_input(!read_, source, ": post_processor puts tokens in twice, which is not supported");
  read_ = true;
  if (type == "TemplateProcessing")
    read_template(part, source, vocab_size);
  else if (type == "BertProcessing" || type == "RobertaProcessing")
    read_classic(part, source, vocab_size);
  else
    fail_input(source, ": post_processor of type ", printable(type), " is not supported");
}

void PostProcessor::read_template(const Json& part, const std::string& source, Index vocab_size) {
  const auto where = source + ": post_processor";
  const auto id_in = [&](const Json& value) {
    check_input(is_id(value, vocab_size), where, " has an id that is no token's, expected 0 to ",
                vocab_size - 1);
    return value.get<std::int32_t>();
  };
  Fields fields(part, source, "post_processor");
  Fields known = fields.object("special_tokens");
  const auto ids_of = [&](const std::string& name) {
    const Json& entry = known.value(name);
    check_input(entry.is_object() && entry.contains("ids") && entry["ids"].is_array(), where,
                ".special_tokens has no ids of ", printable(name));
    Ids ids;
    for (const Json& id : entry["ids"]) ids.push_back(id_in(id));
    return ids;
  };
  const auto parts_of = [&](const std::string& key) {
    const Json& list = fields.value(key);
    check_input(list.is_array() && list.size() <= 1000, where, ".", key, " is not a short list");
    Parts parts;
    for (const Json& entry : list) {
      check_input(entry.is_object() && entry.size() == 1, where, ".", key, " has a strange part");
      const std::string& kind = entry.begin().key();
      Fields inner(entry.front(), source, "post_processor." + key + "." + kind);
      const auto type = static_cast<std::int32_t>(inner.integer("type_id", {0, 1000}, 0));
      if (kind == "SpecialToken") {
        parts.push_back({Content::special, ids_of(inner.text("id")), type});
        continue;
      }
      check_input(kind == "Sequence", where, ".", key, " has a part ", printable(kind),
                  ", expected SpecialToken or Sequence");
      const bool second = inner.choice("id", {"A", "B"}) == "B";
      parts.push_back({second ? Content::second : Content::first, {}, type});
    }
    return parts;
  };
  single_ = parts_of("single");
  if (fields.has("pair")) pair_ = parts_of("pair");
}

/// A token at the beginning and one after each text. RoBERTa's pairs have one more in the middle
/// and no type ids.
void PostProcessor::read_classic(const Json& part, const std::string& source, Index vocab_size) {
  const auto token = [&](const char* key) {
    const Json value = part.value(key, Json());
    const bool sound = value.is_array() && value.size() == 2 && value[0].is_string() &&
                       is_id(value[1], vocab_size);
    check_input(sound, source, ": post_processor.", key, " is not a token and its id");
    return Ids{value[1].get<std::int32_t>()};
  };
  const Ids begin = token("cls"), end = token("sep");
  const bool roberta = part["type"] == "RobertaProcessing";
  const std::int32_t second = roberta ? 0 : 1;
  single_ = {{Content::special, begin, 0}, {Content::first, {}, 0}, {Content::special, end, 0}};
  pair_ = single_;
  if (roberta) pair_.push_back({Content::special, end, 0});
  pair_.push_back({Content::second, {}, second});
  pair_.push_back({Content::special, end, second});
}

Encoding PostProcessor::assemble(const Parts& parts, const Ids& first, const Ids& second,
                                 bool add_special_tokens) {
  Encoding result;
  for (const Part& part : parts) {
    if (part.content == Content::special && !add_special_tokens) continue;
    const Ids& ids = part.content == Content::special ? part.ids
                     : part.content == Content::first ? first
                                                      : second;
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.type_ids.insert(result.type_ids.end(), ids.size(), part.type_id);
  }
  return result;
}

Encoding PostProcessor::single(Ids text, bool add_special_tokens) const {
  return assemble(single_, text, {}, add_special_tokens);
}

Encoding PostProcessor::pair(Ids first, Ids second, bool add_special_tokens) const {
  return assemble(pair_, first, second, add_special_tokens);
}

}  // namespace rapt::detail
