"""The type stubs that the build makes of the compiled module."""

import ast
import pathlib

import rapt
from rapt import _core

STUB = pathlib.Path(rapt.__file__).with_name("_core.pyi")


def test_stubs_name_everything_the_module_has():
    tree = ast.parse(STUB.read_text())
    named = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    public = {name for name in dir(_core) if not name.startswith("_")}
    assert public <= named, public - named


def test_stubs_know_methods_and_arguments():
    tree = ast.parse(STUB.read_text())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, node in classes.items():
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        defined = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
        constants = {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}
        assert defined <= methods | constants, (name, defined - methods - constants)


def test_the_package_says_that_it_is_typed():
    assert STUB.with_name("py.typed").exists()
