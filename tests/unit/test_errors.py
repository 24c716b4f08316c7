"""The error tree: one place for all errors, and messages that say where, what and what to do."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from tailtrain import errors
from tailtrain.errors import (
    DataError,
    DeclarationError,
    InvalidDeclarationError,
    TailtrainError,
    UnsupportedError,
)

CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, Exception) and cls.__module__ == errors.__name__
}


def drawn() -> dict[str, str | None]:
    """Each class of the tree in the module's docstring, and the one above it."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        found = re.match(r"(?P<indent>[ │├└─]*)(?P<name>\w+Error)\b", line)
        if found:
            depth = len(found["indent"]) // 4 - 1
            path = [*path[:depth], found["name"]]
            parents[found["name"]] = path[depth - 1] if depth else None
    return parents


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    real = {
        name: cls.__mro__[1].__name__ if cls is not TailtrainError else None for name, cls in CLASSES.items()
    }
    assert drawn() == real


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_error_says_what_it_is_for(name: str) -> None:
    assert CLASSES[name].__doc__
    assert issubclass(CLASSES[name], TailtrainError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "no such thing"),
        ({"host": "judge"}, "judge: no such thing"),
        ({"field": "cores"}, "cores: no such thing"),
        ({"host": "judge", "field": "cores"}, "judge: cores: no such thing"),
        ({"found": 0}, "no such thing (found 0)"),
        ({"found": "", "expected": 3}, "no such thing (found , expected 3)"),
        ({"fix": "Add it"}, "no such thing. Add it"),
        (
            {
                "host": "judge",
                "field": "cores",
                "found": "4",
                "expected": "a number",
                "fix": "Remove the quotes",
            },
            "judge: cores: no such thing (found 4, expected a number). Remove the quotes",
        ),
    ],
)
def test_a_message_has_what_is_known(fields: dict[str, object], message: str) -> None:
    error = TailtrainError("no such thing", **fields)  # type: ignore[arg-type]
    assert str(error) == message
    assert error.problem == "no such thing"


def test_several_problems_are_told_together_and_one_alone() -> None:
    first = DeclarationError("missing", host="judge", field="cores")
    second = UnsupportedError("not here", field="storage_backend")
    assert str(InvalidDeclarationError([first])) == str(first)
    both = InvalidDeclarationError([first, second])
    assert str(both).splitlines() == [
        "2 problems",
        "- judge: cores: missing",
        "- storage_backend: not here",
    ]
    assert both.problems == (first, second)
    assert (both.host, both.field, both.problem) == ("judge", "cores", "missing")


def test_what_hosts_have_in_common_is_one_problem() -> None:
    alike = [DeclarationError("too old", host=host, field="kernel") for host in ("qfox", "judge")]
    assert str(InvalidDeclarationError(alike)) == "qfox, judge: kernel: too old"
    other = DataError("is missing", field="prose.parquet")
    assert str(InvalidDeclarationError([*alike, other])).splitlines() == [
        "2 problems",
        "- qfox, judge: kernel: too old",
        "- prose.parquet: is missing",
    ]


def test_the_module_needs_nothing_but_python() -> None:
    """It is sent to nodes with the worker's code."""
    imports = set(re.findall(r"^(?:from|import) (\w+)", inspect.getsource(errors), re.MULTILINE))
    assert imports <= {"__future__", "typing"}


def test_an_error_keeps_its_text_where_exceptions_are_copied() -> None:
    error = TailtrainError("gone")
    assert str(pickle.loads(pickle.dumps(error))) == "gone"  # noqa: S301 - our own bytes
