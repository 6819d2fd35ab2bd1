#include "text/tokenizer/tokenizer_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/io/check_input.h"
#include "formats/config/fields.h"
#include "text/models/byte_tokens.h"
#include "text/stages/byte_letters.h"
#include "text/stages/named_pre_tokenizer.h"
#include "text/tokenizer/token_roles.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/characters.h"

namespace rapt::detail {
namespace {

constexpr std::string_view space_letter = "\u2581";
enum class Type : Index { plain = 1, unknown, control, user, unused, byte };

/// Builds a tokenizer from the lists, in the parts that a tokenizer.json would name.
class Assembly {
 public:
  Assembly(TokenizerParts parts, std::string source)
      : parts_(std::move(parts)), source_(std::move(source)) {}

  std::shared_ptr<Tokenizer::Impl> run() {
    check_lists();
    impl_->special = parts_.special;
    // Byte-level BPE may name an unknown token, but no text becomes it.
    if (parts_.model != "gpt2") impl_->options.unknown = parts_.special.unk;
    if (parts_.model == "llama")
      describe_llama();
    else if (parts_.model == "gpt2")
      describe_gpt2();
    else if (parts_.model == "bert")
      describe_bert();
    else
      fail_input(source_, ": tokenizer model ", printable(parts_.model),
                 " is not supported, expected llama, gpt2 or bert");
    add_tokens();
    describe_post_processor();
    impl_->read_parts(source_);
    if (impl_->byte_tokens) make_bytes();
    if (parts_.model == "llama") merge_by_score();
    if (parts_.model == "gpt2") read_merges();
    assign_special_tokens(*impl_);
    impl_->build(source_);
    return impl_;
  }

 private:
  void check_lists() {
    const std::size_t count = parts_.tokens.size();
    check_input(count > 0 && std::cmp_less_equal(count, max_vocab_size), source_, ": ", count,
                " tokens, expected 1 to ", max_vocab_size);
    check_input(parts_.types.empty() || parts_.types.size() == count, source_, ": ",
                parts_.types.size(), " token types for ", count, " tokens");
    for (const auto& id :
         {parts_.special.unk, parts_.special.bos, parts_.special.eos, parts_.special.pad,
          parts_.special.cls, parts_.special.sep, parts_.special.mask})
      check_input(!id || (*id >= 0 && std::cmp_less(*id, count)), source_, ": special token ",
                  id.value_or(0), ", expected 0 to ", count - 1);
    for (std::size_t id = 0; id < count; ++id) {
      std::string& token = parts_.tokens[id];
      check_input(valid_length(token) == token.size(), source_, ": token ", id, " is not UTF-8");
      check_input(type_of(id) != Type::byte || byte_of_token(token), source_, ": token ", id,
                  " is ", printable(token), ", expected a byte such as <0x0A>");
      // No text becomes an empty token, so there may be several.
      check_input(ids_.emplace(token, static_cast<std::int32_t>(id)).second || token.empty(),
                  source_, ": token ", printable(token), " has two ids, the second is ", id);
    }
  }

  Type type_of(std::size_t id) const {
    return parts_.types.empty() ? Type::plain : static_cast<Type>(parts_.types[id]);
  }

  void describe_llama() {
    Json steps = Json::array();
    if (parts_.add_space_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", space_letter}});
    const Json spaces{{"String", " "}}, letters{{"String", space_letter}};
    steps.push_back({{"type", "Replace"}, {"pattern", spaces}, {"content", space_letter}});
    impl_->parts.normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
    Json decoders = Json::array({{{"type", "Replace"}, {"pattern", letters}, {"content", " "}},
                                 {{"type", "ByteFallback"}},
                                 {{"type", "Fuse"}}});
    if (parts_.add_space_prefix)
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    impl_->parts.decoder = {{"type", "Sequence"}, {"decoders", decoders}};
    impl_->options.byte_fallback = impl_->options.fuse_unk = true;
  }

  void describe_gpt2() {
    NamedPreTokenizer named = pre_tokenizer_of_name(parts_.pre, source_);
    impl_->parts.pre_tokenizer = std::move(named.pre_tokenizer);
    impl_->parts.normalizer = std::move(named.normalizer);
    impl_->parts.decoder = std::move(named.decoder);
    impl_->options.ignore_merges = named.ignore_merges;
    // Llama 3 and similar models add bos even if their files do not say so.
    if (!parts_.add_bos && named.adds_bos) parts_.add_bos = parts_.special.bos.has_value();
  }

  /// Words begin with U+2581 here and pieces inside of them with nothing; WordPiece has it the
  /// other way round.
  void describe_bert() {
    impl_->kind = ModelKind::word_piece;
    impl_->options.prefix = "##";
    for (std::size_t id = 0; id < parts_.tokens.size(); ++id) {
      std::string& token = parts_.tokens[id];
      const bool named = token.starts_with('[') && token.ends_with(']') && token.size() > 2;
      if (token.starts_with(space_letter) && token.size() > space_letter.size())
        token.erase(0, space_letter.size());
      else if (!token.empty() && !named && type_of(id) == Type::plain && !token.starts_with("##"))
        token.insert(0, "##");
    }
    impl_->parts.normalizer = {{"type", "BertNormalizer"},
                               {"clean_text", true},
                               {"handle_chinese_chars", true},
                               {"strip_accents", nullptr},
                               {"lowercase", parts_.lowercase}};
    if (parts_.strip_accents) impl_->parts.normalizer["strip_accents"] = *parts_.strip_accents;
    impl_->parts.pre_tokenizer = {{"type", "BertPreTokenizer"}};
    impl_->parts.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  }

  void add_tokens() {
    for (std::size_t id = 0; id < parts_.tokens.size(); ++id) {
      const Type type = type_of(id);
      // Byte-level files mark added tokens as controls; those of BERT have no types at all.
      const std::string& token = parts_.tokens[id];
      const bool bert_name = parts_.model == "bert" && token.starts_with('[') &&
                             token.ends_with(']') && !token.starts_with("[unused") &&
                             token.size() > 2;
      const bool special = type == Type::control || type == Type::unknown || bert_name;
      if (!special && type != Type::user) {
        impl_->tokens.push_back({token});
        continue;
      }
      check_input(token.size() <= longest_added, source_, ": added token ", printable(token),
                  " is longer than ", longest_added, " bytes");
      impl_->tokens.push_back({token, special ? TokenKind::special : TokenKind::added});
      if (token.empty()) continue;  // there is nothing to find
      AddedToken added;
      added.id = static_cast<std::int32_t>(id);
      added.content = token;
      added.special = special;
      impl_->added.push_back(std::move(added));
    }
  }

  /// A template in the format of tokenizer.json.
  void describe_post_processor() {
    const bool bert = parts_.model == "bert";
    SpecialTokens& special = impl_->special;
    if (bert) {
      assign_special_tokens(*impl_);
      special.bos = special.cls;
      special.eos = special.sep;
    }
    const bool add_bos = parts_.add_bos.value_or(bert || parts_.model == "llama");
    const bool add_eos = parts_.add_eos.value_or(bert);
    Json known = Json::object();
    const auto token = [&](const std::optional<std::int32_t>& id, int type) {
      check_input(id.has_value(), source_, ": the tokenizer adds a token that it does not name");
      const std::string& name = impl_->tokens[*id].bytes;
      known[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {name}}};
      return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
    };
    const auto text = [](const char* name, int type) {
      return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
    };
    Json single = Json::array(), second = Json::array();
    if (add_bos) single.push_back(token(special.bos, 0));
    if (add_bos && !bert) second.push_back(token(special.bos, 1));
    single.push_back(text("A", 0)), second.push_back(text("B", 1));
    if (add_eos) single.push_back(token(special.eos, 0));
    if (add_eos) second.push_back(token(special.eos, 1));
    Json pair = single;
    pair.insert(pair.end(), second.begin(), second.end());
    impl_->parts.post_processor = {{"type", "TemplateProcessing"},
                                   {"single", single},
                                   {"pair", pair},
                                   {"special_tokens", known}};
  }

  void make_bytes() {
    for (Tokenizer::Impl::Token& token : impl_->tokens) {
      std::optional<std::string> bytes = bytes_of_letters(token.bytes);
      token.foreign = !bytes;
      if (bytes) token.bytes = std::move(*bytes);
    }
  }

  /// Any two neighbours that spell a token may merge, those of the highest score first.
  void merge_by_score() {
    const std::size_t count = parts_.tokens.size();
    check_input(parts_.scores.size() == count, source_, ": ", parts_.scores.size(), " scores for ",
                count, " tokens");
    for (const double score : parts_.scores)
      check_input(std::isfinite(score), source_, ": a score is not finite");
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return parts_.scores[a] > parts_.scores[b];
    });
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0 && parts_.scores[order[i]] != parts_.scores[order[i - 1]]) ++rank;
      const std::string_view token = parts_.tokens[order[i]];
      if (type_of(order[i]) != Type::plain || token.empty() || token.size() > longest_token)
        continue;
      for (std::size_t cut = first_character(token).length; cut < token.size();
           cut += first_character(token.substr(cut)).length) {
        const auto left = ids_.find(std::string(token.substr(0, cut)));
        const auto right = ids_.find(std::string(token.substr(cut)));
        if (left == ids_.end() || right == ids_.end()) continue;
        impl_->merges.push_back(
            {left->second, right->second, static_cast<std::int32_t>(order[i]), rank});
      }
    }
  }

  void read_merges() {
    for (const std::string& merge : parts_.merges) {
      const auto rank = static_cast<std::uint32_t>(impl_->merges.size());
      const std::size_t space = merge.find(' ', 1);
      check_input(space != std::string::npos, source_, ": merge ", rank, " is ", printable(merge),
                  ", expected two tokens");
      const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
      const auto id = [&](const std::string& token) {
        const auto found = ids_.find(token);
        check_input(found != ids_.end(), source_, ": merge ", rank, " needs the token ",
                    printable(token), ", which is not there");
        return found->second;
      };
      impl_->merges.push_back({id(left), id(right), id(left + right), rank});
    }
  }

  TokenizerParts parts_;
  std::string source_;
  std::shared_ptr<Tokenizer::Impl> impl_ = std::make_shared<Tokenizer::Impl>();
  std::unordered_map<std::string, std::int32_t> ids_;
};

}  // namespace

Tokenizer tokenizer_from_parts(TokenizerParts parts, const std::string& source) {
  return Tokenizer::Impl::made(Assembly(std::move(parts), source).run());
}

}  // namespace rapt::detail
