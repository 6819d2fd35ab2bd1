#pragma once

#include "families/family.h"
#include "rapt/pretrained.h"

namespace rapt {

// What sentence-transformers keeps beside a model: modules.json and a folder for each module.

/// Gives the JSON at a path; none where there is no file.
using FolderFiles = std::function<std::optional<Json>(const std::string& path)>;

/// What the JSON files say: of at most 16 modules, no two of the same files.
struct SentenceOutline {
  struct Layer {
    std::string folder;  // where its numbers are
    Dense dense;         // without them
    bool bias;           // whether there is one among them
  };
  Pooling pooling;  // without dense layers
  std::vector<Layer> layers;
};
/// Throws std::runtime_error.
SentenceOutline sentence_outline(const std::string& folder, const FolderFiles& files);

/// The same with all numbers, which have to be finite unless the options say otherwise. `width` is
/// the model's. Throws std::runtime_error.
Pooling read_pooling(const std::string& folder, Index width, const LoadOptions& options = {});
/// Memory that the numbers of dense layers take, as the headers of their files say. Throws
/// std::runtime_error.
double dense_bytes(const std::string& folder);
/// Into the folder of a model; numbers of dense layers are rounded to the type.
void write_pooling(const std::string& folder, const Pooling& pooling, Type type);

/// The numbers of a layer that reads `width` of them, of the model in a folder. Throws
/// std::runtime_error.
Dense read_dense(const SentenceOutline::Layer& layer, const std::string& model_folder, Index width,
                 const LoadOptions& options);
/// config.json and model.safetensors in a new folder.
void write_dense(const std::string& folder, const Dense& layer, Type type);
/// activation(rows · weight' + bias), of rows [texts, in].
Tensor apply_dense(const Dense& layer, const Tensor& rows, const Context& context);

}  // namespace rapt
