#include <memory>

#include "cli/case.h"
#include "cli/commands.h"
#include "cli/console/options.h"
#include "cli/console/output.h"
#include "rapt/kv_cache.h"

namespace rapt::cli {
namespace {

struct ExplainOptions {
  Case c;
  std::optional<std::string> cache_type = {};
  std::optional<Index> threads = {};
  std::optional<std::string> isa = {};
  bool strict = false, json = false;
};

std::string text_of(const ExplainOptions& options, const Attention& how, const Context& context) {
  const Case& c = options.c;
  const Type type = from_string<Type>(c.dtype);
  if (!options.cache_type)
    return explain(c.q_shape(), c.k_shape(), c.v_shape(), how, type, context);
  CacheOptions cache{.kv_heads = c.k_shape()[1],
                     .dim = c.dim,
                     .value_dim = c.v_shape()[3],
                     .type = from_string<CacheType>(*options.cache_type)};
  if (const std::optional<Lsh> leaf = lsh_part(how.pattern))
    cache.lsh = CacheLsh{.lsh = *leaf, .tokens = c.tokens};
  return explain(c.q_shape(), cache, c.tokens, how, type, context);
}

void run(const ExplainOptions& options) {
  const Case& c = options.c;
  const Context context(options.threads, options.isa);
  Rule rule = rule_of(c);
  rule.how.strict = options.strict;
  const std::string text = text_of(options, rule.how, context);
  if (options.json) {
    print({{"pattern", to_string(rule.how.pattern)},
           {"tokens", c.tokens},
           {"dtype", c.dtype},
           {"isa", context.isa()},
           {"threads", context.threads()},
           {"text", text}});
    return;
  }
  fmt::print("{}{}", text, text.empty() || text.back() == '\n' ? "" : "\n");
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("explain", "Explain how a call would run: route, kernel, tiles, threads");
  const auto options = std::make_shared<ExplainOptions>();
  command->add_option("--tokens", options->c.tokens, "Number of keys")
      ->required()
      ->check(whole_number(1));
  add_case_options(*command, options->c);
  command
      ->add_option("--cache-type", options->cache_type,
                   "Over a cache that stores f32, bf16 or int8")
      ->check(CLI::IsMember({"f32", "bf16", "int8"}));
  command
      ->add_flag("--strict", options->strict, "Over a cache: bit-identical to a prompt in one call")
      ->needs("--cache-type");
  add_threads_option(*command, options->threads);
  add_isa_option(*command, options->isa);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { run(*options); });
}

}  // namespace rapt::cli
