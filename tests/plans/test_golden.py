"""Golden plans: each folder of `cases` holds a situation and the plan for it, as text and in some as JSON.

Hashes and sizes of what templates make are left out, since they vouch for the templates' every byte. After a
change that is meant to show, write `plan.txt` and `plan.json` anew and read what changed:

    TAILTRAIN_WRITE_PLANS=1 pytest tests/plans && git diff docs tests/plans
"""

from __future__ import annotations

import json
import os
import re
import runpy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import decode, encode, schema
from tailtrain.planning.rendering.plan import render_plan, summary
from tailtrain.planning.rendering.text import WIDTH
from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from tests.plans.situations import Situation

CASES = sorted(path.parent for path in Path(__file__).parent.glob("cases/*/case.py"))
AS_JSON = [case for case in CASES if (case / "plan.json").exists()]
SCHEMA = PROJECT / "docs" / "plan.schema.json"


def situation_of(case: Path) -> Situation:
    situation: Situation = runpy.run_path(str(case / "case.py"))["SITUATION"]
    return situation


def as_golden(text: str, golden: Path) -> str:
    """What is written down; the text itself, where it is to be written down."""
    if os.environ.get("TAILTRAIN_WRITE_PLANS"):
        golden.write_text(text)
    return golden.read_text()


@cache
def validator() -> Any:
    published = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


def test_the_published_schema_is_the_one_of_the_document() -> None:
    text = json.dumps(schema(), indent=1) + "\n"
    assert text == as_golden(text, SCHEMA)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_plan_is_as_written_down(case: Path) -> None:
    text = re.sub(r"^Plan [0-9a-f]{12}:", "Plan ID:", situation_of(case).text())
    assert text == as_golden(text, case / "plan.txt")
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_plan_fits_into_eighty_columns(case: Path) -> None:
    text = situation_of(case).text()
    if text.startswith("Refused: "):
        return
    plan, _, _ = text.partition("\n  --- ")  # lines of files are as long as they are
    assert [line for line in plan.splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_summary_counts_every_host_once(case: Path) -> None:
    try:
        document = document_of(situation_of(case).plan())
    except DeclarationError:
        return
    said = summary(document)
    if said.startswith("Plan: "):
        hosts = [int(part.split()[0]) for part in said.removeprefix("Plan: ").split(";")[0].split(", ")]
        leaving = sum(bool(host.actions) for host in document.departed)
        assert sum(hosts) == document.totals.hosts - document.totals.unknown + leaving
    assert all(host.name in said for host in document.hosts if host.unknown)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_plan_as_json_fits_its_schema_and_comes_back(case: Path) -> None:
    situation = situation_of(case)
    try:
        document = document_of(situation.plan())
    except DeclarationError:
        return
    content = encode(document)
    assert [error.message for error in validator().iter_errors(json.loads(content))] == []
    again = decode(content)
    assert again == document
    assert encode(again) == content
    # A saved plan, read again, is shown as it was.
    assert render_plan(again, diff=True) == render_plan(document, diff=True)


@pytest.mark.parametrize("case", AS_JSON, ids=[case.name for case in AS_JSON])
def test_the_plan_as_json_is_as_written_down(case: Path) -> None:
    text = encode(document_of(situation_of(case).plan())).decode()
    text = re.sub(r'^ "id": "[0-9a-f]+"', ' "id": "0"', text, flags=re.MULTILINE)
    text = re.sub(r'"(config_sha256|before_sha256|after_sha256)": "[0-9a-f]+"', r'"\1": "0"', text)
    text = re.sub(r'"(before_bytes|after_bytes)": \d+', r'"\1": 0', text)
    assert text == as_golden(text, case / "plan.json")
