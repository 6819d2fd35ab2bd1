#pragma once

#include "families/family.h"
#include "rapt/models/pretrained.h"

namespace rapt::detail {

// Files of sentence-transformers next to a model: modules.json and a folder for each module.

/// The JSON at a path; none if there is no file.
using FolderFiles = std::function<std::optional<Json>(const std::string& path)>;

/// The contents of the JSON files: at most 16 modules, each with files of its own.
struct SentenceConfig {
  struct Layer {
    std::string folder;  // of its weights
    Dense dense;         // without them
    bool bias;           // whether it has one
  };
  Pooling pooling;  // without dense layers
  std::vector<Layer> layers;
};
/// Throws std::runtime_error.
SentenceConfig sentence_config(const std::string& folder, const FolderFiles& files);

/// Pooling with all weights, which must be finite unless the options allow others. `width` is the
/// model's. Throws std::runtime_error.
Pooling read_pooling(const std::string& folder, Index width, const LoadOptions& options = {});
/// Memory of the dense layers, from the headers of their files. Throws std::runtime_error.
double dense_bytes(const std::string& folder);
/// Into the folder of a model; weights of dense layers are rounded to the type.
void write_pooling(const std::string& folder, const Pooling& pooling, Type type);

/// A layer with its weights; its input has `width` channels. Throws std::runtime_error.
Dense read_dense(const SentenceConfig::Layer& layer, const std::string& model_folder, Index width,
                 const LoadOptions& options);
/// config.json and model.safetensors in a new folder.
void write_dense(const std::string& folder, const Dense& layer, Type type);
/// activation(rows · weight' + bias), of rows [texts, in].
Tensor apply_dense(const Dense& layer, const Tensor& rows, const Context& context);

}  // namespace rapt::detail
