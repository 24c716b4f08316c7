"""Hosts as inventory.py writes them down: slips that Python and pyinfra let pass, found with their lines.

Only what stands there as a literal is looked at; an inventory may be any program.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.spec import NodeRole

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOST = '("@tailscale/name", {"cores": 4, ...})'
_ROLES = frozenset(role.value for role in NodeRole)
_PARTS = 2  # a name and what is said about it


def entry_problems(file: str, tree: ast.Module) -> Iterator[DeclarationError]:
    """What is wrong with the lists of hosts that a file spells out.

    Args:
        file: the inventory as messages call it.
        tree: what is in it.
    """
    seen: dict[str, int] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        for target in statement.targets:
            if isinstance(target, ast.Name) and target.id in _ROLES:
                yield from _group_problems(file, target.id, statement.value, seen)


def _group_problems(
    file: str, role: str, value: ast.expr, seen: dict[str, int]
) -> Iterator[DeclarationError]:
    if isinstance(value, ast.Tuple) and value.elts and isinstance(value.elts[0], ast.List):
        value = value.elts[0]  # hosts, and data for all of them
    if not isinstance(value, ast.List):
        return
    if role in seen:
        yield DeclarationError(
            f"{role} is set twice, so the hosts of the first list are lost",
            field=f"{file}, lines {seen[role]} and {value.lineno}",
            fix="Make one list of both",
        )
    seen[role] = value.lineno
    for entry in value.elts:
        if problem := _entry_problem(entry):
            yield DeclarationError(
                f"an entry of {role} {problem}",
                field=f"{file}, line {entry.lineno}",
                found=ast.unparse(entry)[:80],
                expected=_HOST,
            )
        if isinstance(entry, ast.Tuple):
            for data in entry.elts[1:]:
                yield from _repeated_keys(file, role, data)


def _entry_problem(entry: ast.expr) -> str | None:
    """What is wrong with one entry; None also where that cannot be seen."""
    name: ast.expr | None = entry
    if isinstance(entry, ast.Tuple):
        if len(entry.elts) != _PARTS:
            return f"has {len(entry.elts)} parts"
        name, data = entry.elts
        if isinstance(data, ast.Constant | ast.List | ast.Set | ast.Tuple):
            return "has no dictionary as its second part"
    if isinstance(name, ast.Constant):
        return None if isinstance(name.value, str) and name.value.strip() else "has no name"
    return "is no host" if isinstance(name, ast.Dict | ast.List | ast.Set | ast.Tuple) else None


def _repeated_keys(file: str, role: str, data: ast.expr) -> Iterator[DeclarationError]:
    """Keys that a dictionary has twice: Python takes the last."""
    if not isinstance(data, ast.Dict):
        return
    keys = [key.value for key in data.keys if isinstance(key, ast.Constant)]
    for key in dict.fromkeys(keys):
        if keys.count(key) > 1:
            yield DeclarationError(
                f"an entry of {role} says {key!r} more than once",
                field=f"{file}, line {data.lineno}",
                fix="Leave one of them",
            )
