#pragma once

#include <nanobind/nanobind.h>

namespace rapt::python {

// One for each file: what it puts into the module.
void bind_context(nanobind::module_& module);
void bind_pattern(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_cache(nanobind::module_& module);
void bind_blocks(nanobind::module_& module);
void bind_longformer(nanobind::module_& module);
void bind_rope(nanobind::module_& module);
void bind_positions(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_heads(nanobind::module_& module);
void bind_lab(nanobind::module_& module);

}  // namespace rapt::python
