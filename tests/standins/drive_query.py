"""Two small languages of the Drive API: which files (`q`), and which of their fields (`fields`).

https://developers.google.com/workspace/drive/api/guides/search-files, as far as rclone uses it; and
https://developers.google.com/workspace/drive/api/guides/fields-parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Accept = Callable[["Mapping[str, Any]"], bool]

_TOKEN = re.compile(r"\s*(\(|\)|!=|<=|>=|=|<|>|'(?:[^'\\]|\\.)*'|[A-Za-z]\w*)")
_FIELD = re.compile(r"([\w*]+)(?:\((.*)\)|/(.*))?")


class QueryError(ValueError):
    """The query is not understood."""


def compile_query(text: str, root: str) -> Accept:
    """What a query accepts, asked of files as the API shows them.

    Args:
        text: the query.
        root: the id of the folder that `root` means.

    Raises:
        QueryError: it is not understood.
    """
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if not found:
            raise QueryError(text[position:])
        tokens.append(found[1])
        position = found.end()
    parser = _Parser(tokens, root)
    accept = parser.any_of()
    if parser.tokens:
        raise QueryError(" ".join(parser.tokens))
    return accept


class _Parser:
    """Descends: any_of is made of all_of, these of terms."""

    def __init__(self, tokens: list[str], root: str) -> None:
        self.tokens, self._root = tokens, root

    def any_of(self) -> Accept:
        terms = [self._all_of()]
        while self._next_is("or"):
            terms.append(self._all_of())
        return lambda file: any(term(file) for term in terms)

    def _all_of(self) -> Accept:
        terms = [self._term()]
        while self._next_is("and"):
            terms.append(self._term())
        return lambda file: all(term(file) for term in terms)

    def _term(self) -> Accept:
        match self._take():
            case "not":
                term = self._term()
                return lambda file: not term(file)
            case "(":
                inner = self.any_of()
                self._expect(")")
                return inner
            case text if text.startswith("'"):
                self._expect("in")
                self._expect("parents")
                parent = self._root if text == "'root'" else _unquoted(text)
                return lambda file: parent in file["parents"]
            case field:
                return self._comparison(field, self._take(), self._take())

    def _comparison(self, field: str, operator: str, value: str) -> Accept:
        wanted = operator == "="
        if operator not in ("=", "!="):
            raise QueryError(f"{field} {operator}")
        if field == "trashed":
            return lambda file: (file["trashed"] == (value == "true")) == wanted
        if field in ("name", "mimeType"):
            text = _unquoted(value)
            return lambda file: (file[field] == text) == wanted
        raise QueryError(field)

    def _take(self) -> str:
        if not self.tokens:
            raise QueryError("it ends too early")
        return self.tokens.pop(0)

    def _expect(self, token: str) -> None:
        if (found := self._take()) != token:
            raise QueryError(f"{found}, not {token}")

    def _next_is(self, token: str) -> bool:
        if self.tokens[:1] == [token]:
            del self.tokens[0]
            return True
        return False


def _unquoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def select(value: Mapping[str, Any], fields: str | None) -> Mapping[str, Any]:
    """The fields that are asked for, as in `files(id,name),nextPageToken`; all of them for `*`.

    Raises:
        QueryError: it is not understood.
    """
    if not fields:
        return value
    chosen: dict[str, Any] = {}
    for part in _split(fields):
        found = _FIELD.fullmatch(part)
        if not found:
            raise QueryError(part)
        name, inner = found[1], found[2] or found[3]
        if name == "*":
            return value
        if name in value:
            chosen[name] = _select_in(value[name], inner)
    return chosen


def _select_in(value: Any, fields: str | None) -> Any:
    if not fields:
        return value
    return [select(item, fields) for item in value] if isinstance(value, list) else select(value, fields)


def _split(fields: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in fields:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part for part in parts if part]
