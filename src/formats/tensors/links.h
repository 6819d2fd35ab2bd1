#pragma once

#include <string>

namespace rapt::detail {

/// Where a path of a model leads to, itself or by a folder on the way: within the model's folder
/// or, in the layout of Hugging Face's cache, where snapshots/<revision>/... links to blobs/...,
/// to a blob of this one model. Throws std::runtime_error if it is elsewhere or not there.
void check_link(const std::string& model_folder, const std::string& path);

}  // namespace rapt::detail
