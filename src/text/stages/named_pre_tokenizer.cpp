#include "text/stages/named_pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/io/check_input.h"
#include "text/stages/word_cutter.h"

namespace rapt::detail {
namespace {

enum class Rule {
  byte_level,  // ByteLevel alone: GPT-2's expression
  digits,      // the same, digits one by one
  llama3,
  qwen2,
  qwen35,
  deepseek_llm,
  deepseek_coder,
  deepseek_v3,
  falcon,
  bloom,
  viking,
  tekken,
  gpt4o,
  seed_coder,
  unnamed,  // what llama.cpp takes for files without a name
};

/// What else belongs to a name. Texts are composed (NFC) where the original tokenizer does so.
struct Traits {
  bool ignore_merges = false, composed = false, adds_bos = false;
};

struct Name {
  std::string_view name;
  Rule rule;
  Traits traits = {};
};

constexpr Traits plain{}, composed{.composed = true};
constexpr Traits ignores_merges_adds_bos{.ignore_merges = true, .adds_bos = true};

/// Names of llama.cpp whose texts are cut alike.
constexpr std::array names{
    Name{"gpt-2", Rule::byte_level, plain},
    Name{"gpt2", Rule::byte_level, plain},
    Name{"mpt", Rule::byte_level, composed},
    Name{"olmo", Rule::byte_level, composed},
    Name{"phi-2", Rule::byte_level, plain},
    Name{"jais", Rule::byte_level, plain},
    Name{"trillion", Rule::byte_level, plain},
    Name{"granite-docling", Rule::byte_level, plain},
    Name{"gigachat", Rule::byte_level, plain},
    Name{"mellum", Rule::byte_level, plain},
    Name{"a.x-4.0", Rule::byte_level, plain},
    Name{"exaone4", Rule::byte_level, plain},
    Name{"smollm", Rule::digits, plain},
    Name{"starcoder", Rule::digits, plain},
    Name{"refact", Rule::digits, plain},
    Name{"command-r", Rule::digits, composed},
    Name{"codeshell", Rule::digits, plain},
    Name{"exaone", Rule::digits, plain},
    Name{"minerva-7b", Rule::digits, plain},
    Name{"mellum2", Rule::digits, plain},
    Name{"llama-bpe", Rule::llama3, ignores_merges_adds_bos},
    Name{"llama3", Rule::llama3, ignores_merges_adds_bos},
    Name{"llama-v3", Rule::llama3, ignores_merges_adds_bos},
    Name{"falcon3", Rule::llama3, ignores_merges_adds_bos},
    Name{"falcon-h1", Rule::llama3, ignores_merges_adds_bos},
    Name{"pixtral", Rule::llama3, ignores_merges_adds_bos},
    Name{"midm-2.0", Rule::llama3, ignores_merges_adds_bos},
    Name{"lfm2", Rule::llama3, ignores_merges_adds_bos},
    Name{"dbrx", Rule::llama3, plain},
    Name{"smaug-bpe", Rule::llama3, plain},
    Name{"glm4", Rule::llama3, plain},
    Name{"chatglm-bpe", Rule::llama3, plain},
    Name{"qwen2", Rule::qwen2, composed},
    Name{"deepseek-r1-qwen", Rule::qwen2, plain},
    Name{"stablelm2", Rule::qwen2, plain},
    Name{"megrez", Rule::qwen2, plain},
    Name{"hunyuan", Rule::qwen2, plain},
    Name{"solar-open", Rule::qwen2, plain},
    Name{"grok-2", Rule::qwen2, plain},
    Name{"qwen35", Rule::qwen35, composed},
    Name{"deepseek-llm", Rule::deepseek_llm, plain},
    Name{"deepseek-coder", Rule::deepseek_coder, plain},
    Name{"deepseek-v3", Rule::deepseek_v3, plain},
    Name{"hunyuan-dense", Rule::deepseek_v3, plain},
    Name{"joyai-llm", Rule::deepseek_v3, plain},
    Name{"falcon", Rule::falcon, plain},
    Name{"bloom", Rule::bloom, plain},
    Name{"poro-chat", Rule::bloom, plain},
    Name{"gpt3-finnish", Rule::bloom, plain},
    Name{"viking", Rule::viking, plain},
    Name{"tekken", Rule::tekken, ignores_merges_adds_bos},
    Name{"gpt-4o", Rule::gpt4o, plain},
    Name{"llama4", Rule::gpt4o, plain},
    Name{"kanana2", Rule::gpt4o, plain},
    Name{"minimax-m2", Rule::gpt4o, plain},
    Name{"seed-coder", Rule::seed_coder, plain},
    Name{"default", Rule::unnamed, plain},
};

/// Cased letters, without the scripts that DeepSeek treats otherwise.
constexpr std::string_view deepseek_letters =
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})"
    R"(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})";
constexpr std::string_view cjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view ends = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
constexpr std::string_view spaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view not_between =
    R"([^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

Json split(std::string_view expression) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", expression}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json letters(bool cut) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", cut}};
}

Json digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

/// Capitals, then small letters; and what may follow.
std::string cased_words(std::string_view end) {
  constexpr std::string_view before = R"([^\r\n\p{L}\p{N}]?)";
  constexpr std::string_view upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  constexpr std::string_view lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return joined({before, upper, "*", lower, "+", end, "|", before, upper, "+", lower, "*", end});
}

Json deepseek_v3_steps() {
  return {
      split(R"(\p{N}{1,3})"), split(R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)"),
      split(joined({R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)",
                    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)", spaces})),
      letters(false)};
}

Json steps_of(Rule rule) {
  switch (rule) {
    case Rule::byte_level:
      return {letters(true)};
    case Rule::digits:
      return {digits(true), letters(true)};
    case Rule::llama3:
      return {split(pattern_of(Cut::llama3)), letters(false)};
    case Rule::qwen2:
      return {split(pattern_of(Cut::qwen2)), letters(false)};
    case Rule::qwen35:
      return {split(joined({ends, R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})",
                            R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)", spaces})),
              letters(false)};
    case Rule::deepseek_llm:
      return {split(R"([\r\n])"),
              split(joined({R"(\s?[)", deepseek_letters, "]+"})),
              split(joined({R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E})",
                            R"(\x{2018}-\x{201F}\x{3000}-\x{3002}]+)"})),
              split(R"(\s+$)"),
              split(cjk),
              digits(true),
              letters(false)};
    case Rule::deepseek_coder:
      return {split(R"([\r\n])"), split(R"(\s?\p{L}+)"), split(R"(\s?\p{P}+)"),
              split(cjk),         digits(true),          letters(false)};
    case Rule::deepseek_v3:
      return deepseek_v3_steps();
    case Rule::falcon:  // digits among the letters that stand for bytes, some of which are numbers
      return {{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
              letters(true),
              digits(false),
              split("[0-9][0-9][0-9]")};
    case Rule::bloom:
      return {split(joined({" ?", not_between})), letters(false)};
    case Rule::viking:
      return {split(joined({" ?", not_between})), split(R"(\p{N})"), letters(false)};
    case Rule::tekken:
      return {split(joined({cased_words(""), R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)", spaces})),
              letters(false)};
    case Rule::gpt4o:
      return {split(joined({cased_words(joined({ends, "?"})),
                            R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)", spaces})),
              letters(false)};
    case Rule::seed_coder:
      return {split(joined(
                  {ends, R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)", spaces})),
              letters(false)};
    case Rule::unnamed:
      break;
  }
  return {split(R"([\p{P}\$\+<=>\^~\|]+)"), split(pattern_of(Cut::gpt2)), split(R"(\p{N}+)"),
          split("[0-9][0-9][0-9]"), letters(false)};
}

std::string every_name() {
  std::string text;
  for (const Name& known : names) text += (text.empty() ? "" : ", ") + std::string(known.name);
  return text;
}

}  // namespace

NamedPreTokenizer pre_tokenizer_of_name(const std::string& name, const std::string& source) {
  const std::string_view wanted = name.empty() ? "default" : std::string_view(name);
  const auto* const found = std::find_if(names.begin(), names.end(),
                                         [&](const Name& known) { return known.name == wanted; });
  check_input(found != names.end(), source, ": texts are cut as ", printable(name),
              " (tokenizer.ggml.pre), which rapt does not know, expected one of ", every_name());
  return {.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", steps_of(found->rule)}},
          .normalizer = found->traits.composed ? Json{{"type", "NFC"}} : Json(),
          .decoder = letters(true),
          .ignore_merges = found->traits.ignore_merges,
          .adds_bos = found->traits.adds_bos};
}

}  // namespace rapt::detail
