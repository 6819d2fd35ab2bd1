#include "python/src/bind/bind.h"

NB_MODULE(_core, module) {
  using namespace rapt::python;
  nanobind::set_leak_warnings(false);  // caches of plans live until the process ends
  module.doc() = "The compiled half of rapt; use the names of the rapt package.";
  bind_context(module);
  bind_pattern(module);
  bind_plan(module);
  bind_attention(module);
  bind_cache(module);
  bind_longformer(module);
  bind_blocks(module);
  bind_rope(module);
  bind_positions(module);
#ifdef RAPT_MODELS
  bind_tokenizer(module);
  bind_model(module);
  bind_heads(module);
  bind_lab(module);
#endif
}
