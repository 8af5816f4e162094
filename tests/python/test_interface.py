"""What is public can be asked for its signature, and the stub of the extension module is the module's own."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tensorferry
import tensorferry.grpc
import tensorferry.smg
from tensorferry import Puller, View


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, thing in vars(module).items():
        if not name.startswith("_") and callable(thing) and getattr(thing, "__module__", "").startswith("tensorferry"):
            yield name, thing
            if isinstance(thing, type):
                for part, member in inspect.getmembers(thing, callable):
                    of_exceptions = issubclass(thing, BaseException) and hasattr(BaseException, part)
                    if not part.startswith("_") and not of_exceptions:
                        yield f"{name}.{part}", member


@pytest.mark.parametrize("module", [tensorferry, tensorferry.grpc, tensorferry.smg])
def test_signatures_can_be_asked_for(module: ModuleType) -> None:
    names = []
    for name, thing in public(module):
        assert inspect.signature(thing) is not None, name
        names.append(name)
    assert len(names) > 10
    assert set(getattr(module, "__all__", ())) - {"__version__"} <= set(names)


def test_signatures_tell_names_and_types() -> None:
    assert list(inspect.signature(Puller.pull).parameters) == [
        *("self", "handle", "timeout", "key", "cancel", "landing_timeout")
    ]
    assert inspect.signature(View.numpy).return_annotation == "numpy.ndarray[Any, Any]"


Functions = dict[str, ast.arguments | None]


def arguments(function: ast.stmt) -> ast.arguments:
    assert isinstance(function, ast.FunctionDef)
    return function.args


def of_stub(body: list[ast.stmt], prefix: str = "") -> Functions:
    out: Functions = {}
    for entry in body:
        if isinstance(entry, ast.ClassDef):
            out |= {entry.name: None} | of_stub(entry.body, entry.name + ".")
        elif isinstance(entry, ast.FunctionDef):
            property_ = any(isinstance(d, ast.Name) and d.id == "property" for d in entry.decorator_list)
            out[prefix + entry.name] = None if property_ else entry.args
    return out


def of_module(namespace: Any, prefix: str = "") -> Functions:
    out: Functions = {}
    for name, thing in namespace.items():
        if isinstance(thing, type):
            out |= {name: None} | of_module(vars(thing), name + ".")
        elif isinstance(thing, property):
            out[prefix + name] = None
        elif told := getattr(thing, "__nb_signature__", None):
            ((signature, _, _),) = told  # one: nothing is overloaded
            out[prefix + name] = arguments(ast.parse(f"{signature}: ...").body[0])
    return out


# What the module's own signatures are as exact about as the stub.
EXACT = re.compile(r"(int|float|bool|str|bytes)( \| None)?")


def test_the_stub_of_the_module_is_the_modules() -> None:
    stub = of_stub(ast.parse((Path(tensorferry.__path__[0]) / "_core.pyi").read_text()).body)
    stub.pop("Memory.__buffer__")  # a slot of the type, which has no signature
    module = of_module(vars(tensorferry._core))
    assert sorted(stub) == sorted(module)
    for name, ours in module.items():
        theirs = stub[name]
        if ours is None or theirs is None:
            assert ours is theirs, name
            continue
        assert [a.arg for a in theirs.args] == [a.arg for a in ours.args], name
        for mine, yours in zip(ours.args, theirs.args, strict=True):
            if mine.annotation is not None and EXACT.fullmatch(exact := ast.unparse(mine.annotation)):
                assert yours.annotation is not None
                assert ast.unparse(yours.annotation) == exact, f"{name}({mine.arg})"
