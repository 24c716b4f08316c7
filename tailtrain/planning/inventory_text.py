"""The inventory as text: an entry, a whole new file, and a file with an entry more."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.spec.host_data import CONNECTOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.newcomers import Entry

GROUP = "compute"
INDENT = "    "

_HEAD = '''"""The machines that train. A host is its tailnet name and its hardware; adding one is one line.

A host may also say `ssh_user` and `_sudo` (a login user with sudo), `reserve_cores` and `reserve_ram_gb`
(kept free for whoever works on that machine).
"""
'''


def entry_text(entry: Entry) -> str:
    """An entry as it is written in a list, without the comma after it."""
    name, values = _value(entry)
    data = ", ".join(f"{_literal(key)}: {_literal(value)}" for key, value in values.items())
    return f"({_literal(name)}, {{{data}}})"


def inventory_text(primary: Entry, compute: Sequence[Entry], left_out: Mapping[str, str]) -> str:
    """A whole inventory file.

    Args:
        primary: the node that aggregates.
        compute: the other nodes, in the order in which they are written.
        left_out: machines of the tailnet that are no nodes, and why not; they become comments.
    """
    lines = [_HEAD, "primary = [", f"{INDENT}{entry_text(primary)},", "]", ""]
    lines += [f"{GROUP} = [", *(f"{INDENT}{entry_text(entry)}," for entry in compute), "]"]
    if left_out:
        width = max(map(len, left_out))
        lines += ["", "# Machines of the tailnet that are no nodes, and why:"]
        lines += [f"#   {_one_line(name):<{width}}  {_one_line(why)}" for name, why in left_out.items()]
        lines += ["# Once one can be a node: tailtrain add NAME --write"]
    return "\n".join(lines) + "\n"


def with_entry(text: str, entry: Entry, *, file: str) -> str:
    """The inventory with one entry more, at the end of its list `compute`; all else stays byte for byte.

    Args:
        text: the file, line endings as they are.
        entry: what to add.
        file: how to call the file in errors.

    Raises:
        DeclarationError: the list is made in a way that a line cannot be added to; the error says which.
    """
    before = _parse(text, file)
    found = _list_in(before, file)
    changed = (
        _appended(text, entry_text(entry)) if found is None else _inserted(text, found, entry_text(entry))
    )
    # What was written is held against what was meant: the same file, with this entry more.
    after = _parse(changed, file)
    grown = _list_in(after, file)
    added = grown.elts.pop() if grown and grown.elts else None
    if found is None:
        after.body.pop()
    if ast.dump(before) != ast.dump(after) or added is None or ast.literal_eval(added) != _value(entry):
        raise _not_safe(f"a line cannot be added to {GROUP}", file, found.lineno if found else None)
    return changed


def _parse(text: str, file: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise DeclarationError(f"cannot be read: {error.msg}", field=f"{file}, line {error.lineno}") from None


def _list_in(module: ast.Module, file: str) -> ast.List | None:
    """The list `compute` as the file writes it; None where the file has none.

    Raises:
        DeclarationError: it is made in another way than as one list.
    """
    bound = [node for node in ast.walk(module) if _binds(node)]
    if not bound:
        return None
    for statement in module.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.List() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.List() as value)
            ) if name == GROUP and len(bound) == 1:
                return value
    raise _not_safe(f"{GROUP} is not written as one list", file, getattr(bound[0], "lineno", None))


def _binds(node: ast.AST) -> bool:
    """Whether this gives the name of the group a value, or may do so."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name == GROUP
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name == GROUP
        case ast.alias(name=name, asname=given):
            return (given or name) in (GROUP, "*")
    return False


@dataclass(frozen=True)
class _Place:
    """A list in a text: offsets in characters."""

    opened: int
    closed: int
    last: int
    """Where the last thing before the closing bracket ends, comments aside."""
    wants_comma: bool
    """Whether that is an entry without a comma after it."""


def _place_of(text: str, node: ast.List) -> _Place:
    starts = _line_starts(text)

    def offset(line: int, column: int) -> int:
        # ast counts bytes of UTF-8, offsets are characters.
        begin = starts[line - 1]
        return begin + len(text[begin : starts[line]].encode()[:column].decode())

    opened = offset(node.lineno, node.col_offset)
    closed = offset(node.end_lineno or node.lineno, node.end_col_offset or 0) - 1
    last, sign = opened + 1, "["
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        end = starts[token.end[0] - 1] + token.end[1]
        if (
            token.type in (tokenize.OP, tokenize.STRING, tokenize.NAME, tokenize.NUMBER)
            and last < end <= closed
        ):
            last, sign = end, token.string
    return _Place(opened, closed, last, wants_comma=bool(node.elts) and sign != ",")


def _line_starts(text: str) -> list[int]:
    """Where each line begins, as Python's own parser counts lines, and where the text ends."""
    starts = [0]
    for line in io.StringIO(text, newline=""):
        starts.append(starts[-1] + len(line))
    return starts


def _appended(text: str, entry: str) -> str:
    newline = _newline(text)
    end = "" if not text or text.endswith("\n") else newline
    return f"{text}{end}{newline}{GROUP} = [{newline}{INDENT}{entry},{newline}]{newline}"


def _inserted(text: str, node: ast.List, entry: str) -> str:
    newline, place = _newline(text), _place_of(text, node)
    head, tail, rest = text[: place.last], text[place.last : place.closed], text[place.closed :]
    comma = "," if place.wants_comma else ""
    if "\n" not in text[place.opened : place.closed]:
        if not node.elts:
            return f"{head}{newline}{INDENT}{entry},{newline}{tail}{rest}"
        return f"{head}{comma} {entry}{tail}{rest}"
    before = f"{head}{comma}{tail}"
    start = before.rfind("\n") + 1
    indent = _indent_of(text, node)
    if before[start:].strip():  # the closing bracket stands behind the last entry
        return f"{before}{newline}{indent}{entry}{rest}"
    return f"{before[:start]}{indent}{entry},{newline}{before[start:]}{rest}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, node: ast.List) -> str:
    """What the last entry has before it, where it begins its line."""
    if node.elts:
        start = _line_starts(text)[node.elts[-1].lineno - 1]
        line = text[start:]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if node.elts[-1].col_offset == len(indent):
            return indent
    return INDENT


def _value(entry: Entry) -> tuple[str, dict[str, object]]:
    return CONNECTOR_PREFIX + entry.name, dict(entry.data)


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _not_safe(problem: str, file: str, line: int | None) -> DeclarationError:
    return DeclarationError(
        f"{problem}, so it is not changed",
        field=f"{file}, line {line}" if line else file,
        expected=f"{GROUP} = [...]",
        fix="Put the line there yourself; without --write it is shown",
    )
