#pragma once

#include <string>

namespace rapt::cli {

/// The path of a model: the name itself if it is a path, else a folder or GGUF file of that name in
/// the folders of $RAPT_MODELS, else the files of an installed Python package ("minilm",
/// "smollm2"). Throws std::runtime_error that says where it looked and what to install.
std::string find_model(const std::string& name);

}  // namespace rapt::cli
