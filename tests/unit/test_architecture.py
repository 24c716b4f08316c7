"""The shape of the sources: layers that point one way, modules of a size, no leftovers."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from contextlib import redirect_stdout
from functools import cache
from typing import TYPE_CHECKING

from importlinter.cli import lint_imports

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

LONGEST = 300
# Modules that are longer today, with the length that they must not pass.
LONGER = {
    "tailtrain/data/receive.py": 310,
    "tailtrain/tailnet/session.py": 320,
}
PACKAGES = ("tailtrain", "lab", "deploys", "group_data")
SOURCES = sorted(
    [*(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")), PROJECT / "inventory.py"]
)
MODULES = {str(path.relative_to(PROJECT)): path for path in SOURCES}
LEFTOVERS = re.compile(r"\b(?:TODO|FIXME|XXX|HACK|WIP|NotImplemented\w*|[Pp]laceholder|[Ff]or now)\b")
BANNER = re.compile(r"^\s*#\s*([-=#*~_])\1{3,}", re.MULTILINE)
FORBIDDEN_CALLS = {"eval", "exec"}
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 40
    assert "tailtrain/planning/actions.py" in MODULES


def test_the_layers_point_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    said = io.StringIO()
    with redirect_stdout(said):
        failed = lint_imports(cache_dir=None)
    assert not failed, said.getvalue()


def test_modules_have_a_size_to_be_read_at_once() -> None:
    lines = {name: text_of(path).count("\n") for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > LONGER.get(name, LONGEST)} == {}


def test_nothing_is_left_for_later() -> None:
    found = {
        name: LEFTOVERS.findall(text_of(path)) + BANNER.findall(text_of(path))
        for name, path in MODULES.items()
    }
    assert {name: leftovers for name, leftovers in found.items() if leftovers} == {}


def commented_out(text: str) -> list[str]:
    """Comments that parse as a statement: code that somebody left."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            try:
                body = ast.parse(token.string.lstrip("# ")).body
            except SyntaxError:
                continue
            if not all(isinstance(node, ast.Expr | ast.AnnAssign) for node in body):
                found.append(token.string)
    return found


def test_no_code_is_commented_out() -> None:
    found = {name: commented_out(text_of(path)) for name, path in MODULES.items()}
    assert {name: comments for name, comments in found.items() if comments} == {}


def dangers(tree: ast.Module) -> list[str]:
    """What would run text or bytes from elsewhere as code, or hand a shell a string."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names if alias.name.partition(".")[0] in FORBIDDEN_MODULES]
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in FORBIDDEN_MODULES:
                found.append(module)
            case ast.Call(func=ast.Name(id=called)) if called in FORBIDDEN_CALLS:
                found.append(called)
            case ast.keyword(arg="shell", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                found.append("shell")
            case _:
                pass
    return found


def test_nothing_from_elsewhere_is_run() -> None:
    found = {name: dangers(tree_of(path)) for name, path in MODULES.items()}
    assert {name: what for name, what in found.items() if what} == {}


def test_what_is_raised_on_purpose_is_of_our_own_tree() -> None:
    """A bare Exception or RuntimeError would reach a person as a traceback."""
    found = [
        name
        for name, path in MODULES.items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id in {"Exception", "RuntimeError"}
    ]
    assert found == []


def test_these_checks_see_what_they_look_for() -> None:
    assert commented_out("# x = 1\n# a sentence here\n# y: int\n") == ["# x = 1"]
    assert dangers(ast.parse("import pickle.x\nfrom marshal import a\neval(b)\nrun(c, shell=True)")) == [
        *("pickle.x", "marshal", "eval", "shell")
    ]
    assert LEFTOVERS.search("# TODO: later")
    assert BANNER.search("# ----- part two")
