"""Templates rendered for every declared node although no host has answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning.node_config import Templates
from tailtrain.planning.rehearsal import check_templates
from tailtrain.spec import NodeReserve
from tests.plans.situations import MATERIAL, NAMES, PROJECT, Situation

SOURCES = {path.name: path.read_text() for path in (PROJECT / "templates").glob("*.j2")}
UNIT = "tailtrain-worker.service.j2"


def refusal(**changed: str) -> str:
    with pytest.raises(DeclarationError) as caught:
        check_templates(Templates(SOURCES | changed), Situation().declared(), MATERIAL)
    return str(caught.value)


def unit_with(line: str) -> dict[str, str]:
    return {UNIT: SOURCES[UNIT].replace("[Service]\n", f"[Service]\n{line}\n")}


def test_the_project_s_own_templates_are_right_for_every_node() -> None:
    declared = Situation().declared()
    check_templates(Templates(SOURCES), declared, MATERIAL)
    reserves = {**declared.reserves, "qfox": NodeReserve(cores=2, ram_gb=1, nice=-3)}
    check_templates(Templates(SOURCES), replace(declared, reserves=reserves), MATERIAL)


def test_what_fails_for_all_is_said_once_with_all_names() -> None:
    text = refusal(**unit_with("{{ nosuch }}"))
    assert text == f"{', '.join(NAMES)}: templates/{UNIT}, line 8: cannot be rendered: 'nosuch' is undefined"


def test_what_fails_for_one_node_names_that_node() -> None:
    text = refusal(**unit_with("{{ 1 // (threads - 8) }}"))
    assert text.startswith(f"architect: templates/{UNIT}, line 8: cannot be rendered: integer division")


def test_all_templates_that_fail_are_told_at_once() -> None:
    text = refusal(**unit_with("{{ nosuch }}"), **{"worker.json.j2": "{"})
    assert text.splitlines()[0] == "2 problems in the declaration"
    assert "worker.json.j2" in text
    assert UNIT in text


def test_a_missing_template_is_named() -> None:
    with pytest.raises(DeclarationError, match="no such template"):
        check_templates(Templates({}), Situation().declared(), MATERIAL)


@pytest.mark.parametrize(
    "line",
    [
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ account.__init__.__globals__ }}",
    ],
)
def test_a_template_is_no_place_for_programs(line: str) -> None:
    assert "cannot be rendered" in refusal(**unit_with(line))
