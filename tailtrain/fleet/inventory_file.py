"""Reading inventory.py and group_data as pyinfra does, with every mistake in them said in a sentence.

pyinfra takes the form of these files on trust: what it cannot use ends in a traceback, and what it does not
know it passes over, so that a group of hosts can go missing without a word.
"""

from __future__ import annotations

import ast
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from pyinfra.api import inventory as pyinfra_inventory
from pyinfra.api.exceptions import PyinfraError
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.inventory import make_inventory

from tailtrain.errors import DeclarationError
from tailtrain.fleet.entries import entry_problems
from tailtrain.spec import NodeRole
from tailtrain.spec.problems import Problems, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyinfra.api.inventory import Inventory

HOSTS = 'hosts as ("@tailscale/name", {"cores": 4, ...}) in lists named primary and compute'


def read_inventory(
    path: Path, folder: Path, *, override: Mapping[str, Any] | None = None, group_data: Sequence[str] = ()
) -> Inventory:
    """The inventory in a file, with its group data.

    Args:
        path: the inventory.
        folder: where the command was typed: its `group_data` counts as well.
        override: what `--data` says.
        group_data: further folders of group data.

    Raises:
        DeclarationError: all that is wrong with the files, each with its file and line.
    """
    folders = dict.fromkeys(
        [folder / "group_data", path.resolve().parent / "group_data", *map(Path, group_data)]
    )
    files = [file for each in folders for file in _group_files(each)]
    problems = Problems()
    trees = {}
    for file in (path, *files):
        with problems.gathered():
            trees[file] = parsed(file)
    if path in trees:
        problems.found += entry_problems(shown_path(path), trees[path])
    problems.raise_if_any()
    found = _made(path, folder, override or {}, group_data)
    problems.found += _lost_groups(path, trees[path], found)
    problems.found += _groups_of_nobody(files, found)
    problems.raise_if_any()
    if not len(found):
        raise DeclarationError("names no hosts", field=shown_path(path), expected="lists primary and compute")
    return found


def shown_path(file: Path | str) -> str:
    """A file as it is shown: from the folder at hand where it lies in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _group_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".py") if folder.is_dir() else []


def parsed(file: Path) -> ast.Module:
    """The file as Python reads it.

    Raises:
        DeclarationError: it cannot be read, is no text, or is no Python.
    """
    try:
        text = file.read_bytes().decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when pyinfra compiles it
            return ast.parse(text, shown_path(file))
    except OSError as error:
        problem, line = error.strerror or "unreadable", None
    except UnicodeDecodeError as error:
        problem, line = f"no text in UTF-8 (byte {error.object[error.start]:#04x})", None
    except SyntaxError as error:
        problem, line = error.msg, error.lineno
    except (ValueError, RecursionError, MemoryError) as error:  # a zero byte, or nested too deep for Python
        problem, line = str(error) or "nested too deep", None
    raise DeclarationError(f"cannot be read: {problem}", field=_place(file, line))


def _made(path: Path, folder: Path, override: Mapping[str, Any], group_data: Sequence[str]) -> Inventory:
    """What pyinfra makes of the files, which run now."""
    try:
        with _connectors_found_once():
            found: Inventory = make_inventory(
                str(path),
                override_data=dict(override),
                cwd=str(folder),
                group_data_directories=list(group_data),
            )
    except SyntaxError as error:
        problem, field = f"cannot be read: {error.msg}", _place(error.filename or path, error.lineno)
    except UnexpectedExternalError as error:
        cause = error.exception
        lines = [
            frame.lineno for frame in extract_tb(cause.__traceback__) if frame.filename == error.filename
        ]
        problem = f"cannot be read: {type(cause).__name__}: {cause}"
        field = _place(error.filename, lines[-1] if lines else None)
    except PyinfraError as error:
        problem, field = f"pyinfra cannot use it: {error}", shown_path(path)
    except SystemExit as error:
        problem, field = f"ends the program instead of naming hosts: {error}", shown_path(path)
    except (TypeError, ValueError, AttributeError, LookupError, OSError) as error:
        raise DeclarationError(
            f"pyinfra cannot use it: {error}", field=shown_path(path), expected=HOSTS
        ) from None
    else:
        return found
    raise DeclarationError(problem, field=field)


@contextmanager
def _connectors_found_once() -> Iterator[None]:
    """Keep what pyinfra finds when it looks through all installed packages for connectors.

    It does so four times for each host, which is most of what planning for a thousand hosts would cost.
    """
    names = ("get_all_connectors", "get_execution_connectors")
    before = {name: getattr(pyinfra_inventory, name) for name in names}
    for name, look in before.items():
        setattr(pyinfra_inventory, name, cache(look))
    try:
        yield
    finally:
        for name, look in before.items():
            setattr(pyinfra_inventory, name, look)


def _lost_groups(path: Path, tree: ast.Module, found: Inventory) -> list[DeclarationError]:
    """Roles that the file gives a value that pyinfra does not take for a group of hosts, and passes over."""
    problems = []
    for role in NodeRole:
        lines = [line for name, line in _assigned(tree) if name == role.value]
        if lines and role.value not in found.group_data:
            problems.append(
                DeclarationError(
                    f"{role.value} is no list of hosts",
                    field=_place(path, lines[-1]),
                    expected='a list of ("@tailscale/name", {"cores": 4, ...})',
                )
            )
    return problems


def _assigned(tree: ast.Module) -> list[tuple[str, int]]:
    """The names that a module's own lines assign to, with their lines."""
    own = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        (node.id, node.lineno)
        for statement in tree.body
        if not isinstance(statement, own)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]


def _groups_of_nobody(files: Sequence[Path], found: Inventory) -> list[DeclarationError]:
    """Group data whose file is named almost like a group: nobody would have them."""
    groups = ["all", *(name for name, hosts in found.groups.items() if hosts)]
    return [
        DeclarationError("no group has this name", field=shown_path(file), fix=f"Did you mean {meant}.py?")
        for file in files
        if file.stem not in groups and (meant := nearest(file.stem, groups))
    ]


def _place(file: Path | str, line: int | None) -> str:
    return f"{shown_path(file)}, line {line}" if line else shown_path(file)
