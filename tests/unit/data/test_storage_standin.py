"""The Drive stand-in's two languages, as https://developers.google.com/workspace/drive/api has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.standins.drive_query import QueryError, compile_query, select

FILES: dict[str, dict[str, Any]] = {
    "a": {"name": "a", "mimeType": "folder", "parents": ["root-id"], "trashed": False},
    "b's": {"name": "b's", "mimeType": "text", "parents": ["x"], "trashed": False},
    "gone": {"name": "gone", "mimeType": "text", "parents": ["x"], "trashed": True},
}


@pytest.mark.parametrize(
    ("query", "accepted"),
    [
        ("trashed=false", ["a", "b's"]),
        ("'root' in parents", ["a"]),
        ("'x' in parents and trashed=false", ["b's"]),
        (r"name='b\'s'", ["b's"]),
        ("not name = 'a'", ["b's", "gone"]),
        ("mimeType='folder' or mimeType!='folder' and trashed=true", ["a", "gone"]),
        ("(mimeType='folder' or mimeType!='folder') and trashed=true", ["gone"]),
    ],
)
def test_a_query_accepts_what_it_says(query: str, accepted: list[str]) -> None:
    accept = compile_query(query, "root-id")
    assert [name for name, file in FILES.items() if accept(file)] == accepted


@pytest.mark.parametrize(
    "query", ["", "name", "name=", "size > 3", "name='a", "(trashed=false", "trashed=false x"]
)
def test_a_query_that_is_not_understood_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        compile_query(query, "root-id")


@pytest.mark.parametrize(
    ("fields", "chosen"),
    [
        (None, {"files": [{"id": 1, "name": "a"}], "next": "2", "quota": {"limit": "5", "usage": "4"}}),
        ("files(id),next", {"files": [{"id": 1}], "next": "2"}),
        ("quota/limit", {"quota": {"limit": "5"}}),
        ("absent,next", {"next": "2"}),
    ],
)
def test_fields_are_those_asked_for(fields: str | None, chosen: dict[str, Any]) -> None:
    value = {"files": [{"id": 1, "name": "a"}], "next": "2", "quota": {"limit": "5", "usage": "4"}}
    assert select(value, fields) == chosen
