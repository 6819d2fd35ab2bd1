#include "text/tokenizer/special_tokens.h"

#include "base/io/input.h"
#include "formats/config/fields.h"

namespace rapt {
namespace {

bool is_id(const Json& value, Index entries) {
  return value.is_number_integer() && value.get<Index>() >= 0 && value.get<Index>() < entries;
}

}  // namespace

EncodingFrame::EncodingFrame()
    : single_{{Content::first, {}, 0}}, pair_{{Content::first, {}, 0}, {Content::second, {}, 1}} {}

EncodingFrame::EncodingFrame(const Json& part, const std::string& source, Index entries)
    : EncodingFrame() {
  if (!part.is_null()) read(part, source, entries);
}

void EncodingFrame::read(const Json& part, const std::string& source, Index entries) {
  Fields fields(part, source, "post_processor");
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const Json& list = fields.value("processors");
    check_input(list.is_array(), source, ": post_processor.processors is not a list");
    for (const Json& inner : list) read(inner, source, entries);
    return;
  }
  if (type == "ByteLevel") return;  // it corrects places in the text, which nobody asks for here
  check_input(!read_, source, ": post_processor puts tokens in twice, which is not supported");
  read_ = true;
  if (type == "TemplateProcessing")
    read_template(part, source, entries);
  else if (type == "BertProcessing" || type == "RobertaProcessing")
    read_classic(part, source, entries);
  else
    fail_input(source, ": post_processor of type ", printable(type), " is not understood");
}

void EncodingFrame::read_template(const Json& part, const std::string& source, Index entries) {
  const auto where = source + ": post_processor";
  const auto id_in = [&](const Json& value) {
    check_input(is_id(value, entries), where, " has an id that is no token's, expected 0 to ",
                entries - 1);
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

/// Both have a token at the beginning and one after each text. RoBERTa's pairs have one more in the
/// middle and no types.
void EncodingFrame::read_classic(const Json& part, const std::string& source, Index entries) {
  const auto token = [&](const char* key) {
    const Json value = part.value(key, Json());
    const bool sound =
        value.is_array() && value.size() == 2 && value[0].is_string() && is_id(value[1], entries);
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

Encoding EncodingFrame::put_together(const Parts& parts, const Ids& first, const Ids& second,
                                     bool special) {
  Encoding result;
  for (const Part& part : parts) {
    if (part.content == Content::special && !special) continue;
    const Ids& ids = part.content == Content::special ? part.ids
                     : part.content == Content::first ? first
                                                      : second;
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.types.insert(result.types.end(), ids.size(), part.type);
  }
  return result;
}

Encoding EncodingFrame::of(Ids text, bool special) const {
  return put_together(single_, text, {}, special);
}

Encoding EncodingFrame::of(Ids first, Ids second, bool special) const {
  return put_together(pair_, first, second, special);
}

}  // namespace rapt
