#include "formats/config/toml.h"

#include "fuzz/target.h"
#include "train/run/run_config.h"

namespace rapt::fuzz {
using namespace detail;
namespace {

std::vector<std::string> seeds() {
  return {
      "[model]\nkind = \"decoder\"\nvocab_size = 258\nhidden_size = 16\nlayers = 2\nheads = 2\n"
      "patterns = [\"causal & window(128, 0)\"]\n[train]\nsteps = 10\nlearning_rate = 1e-3\n"
      "max_grad_norm = 1.0\nevaluate_every = \"none\"\n"
      "[data]\nbatch_size = 8\n[tokenizer]\nkind = \"bytes\"\n",
      "a = 1\nb.c = [1, 2.5, true, \"x\", 'y']\nd = {e = \"\"\"multi\nline\"\"\", f = "
      "0xFF}\n[[g]]\n"
      "h = -inf\n[[g]]\nh = 1_000\n",
      "[model]\npositions = \"rope\"\nrope_base = 10000.0\nnorm = \"rms\"\n"};
}

std::vector<std::string> words() {
  return {"[model]", "[train]", "[data]", "[tokenizer]", "[[",           "]]",
          "\"\"\"",  "'''",     "= ",     "nan",         "inf",          "1979-05-27",
          "0x",      "0b1",     "1e999",  "\\u0041",     "{a=",          "heads = ",
          "\\\n",    "none",    "true",   "lr = ",       "patterns = [", "9223372036854775807",
          "[[[["};
}

/// A config whose parts do not fit is a user's mistake, and so a refusal.
std::function<void()> open(std::string_view input) {
  const Json object = parse_toml(input, "fuzz");
  return [object] {
    try {
      const RunConfig config = run_config_from(object, "fuzz");
      expect(to_json(run_config_from(to_json(config), "again")) == to_json(config),
             "a config that is another one once written");
    } catch (const std::invalid_argument& error) {
      throw std::runtime_error(error.what());
    }
  };
}

}  // namespace

const Target toml_target = {"toml", seeds, words, open};

}  // namespace rapt::fuzz
