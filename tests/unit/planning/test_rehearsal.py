"""Templates rendered for every declared node although no host has answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning.rehearsal import check_memory, check_templates
from tailtrain.planning.templates import Templates
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
    text = refusal(**unit_with("# {{ 1 // (threads - 8) }}"))
    assert text.startswith(f"architect: templates/{UNIT}, line 8: cannot be rendered: integer division")


def test_all_templates_that_fail_are_told_at_once() -> None:
    text = refusal(**unit_with("{{ nosuch }}"), **{"worker.json.j2": "{"})
    assert text.splitlines()[0] == "2 problems"
    assert "worker.json.j2" in text
    assert UNIT in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not start what it should"),
        (SOURCES[UNIT].replace("ExecStart=", "ExecStop="), "does not start what it should"),
        (SOURCES[UNIT].replace("{{ worker_config }}", "/etc/other.json"), "does not start what it should"),
        (SOURCES[UNIT].replace("[Service]", "[Service"), "line 7 of it is no setting of a section"),
        ("Type=exec\n", "line 1 of it is no setting of a section"),
    ],
)
def test_a_unit_is_one_and_starts_the_worker(text: str, words: str) -> None:
    assert words in refusal(**{UNIT: text})


def test_what_makes_no_json_is_said_once() -> None:
    text = refusal(**{"worker.json.j2": SOURCES["worker.json.j2"].replace("seed | tojson }},", "seed }}")})
    assert text.startswith(", ".join(NAMES) + ": templates/worker.json.j2: does not make JSON")
    assert text.endswith("in line 6 of it")


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


def test_a_model_that_no_node_can_hold_is_refused_by_every_name() -> None:
    situation = Situation().with_settings(model={"layers": 64, "width": 4096, "heads": 4, "context": 1024})
    with pytest.raises(DeclarationError) as caught:
        check_memory(situation.declared())
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 problems"  # hosts of one size are told together
    assert all("its memory cannot hold the training" in line for line in lines[1:])
    assert {name for line in lines[1:] for name in NAMES if name in line} == set(NAMES)
    check_memory(Situation().declared())


def test_what_a_node_keeps_for_itself_is_not_the_training_s() -> None:
    declared = Situation().declared()
    reserves = {**declared.reserves, "judge": NodeReserve(ram_gb=7)}
    settings = Situation().with_settings(model={"width": 512, "layers": 8}).declared().settings
    with pytest.raises(DeclarationError, match="judge: ram_gb: its memory"):
        check_memory(replace(declared, reserves=reserves, settings=settings))


def test_a_host_with_less_memory_than_the_model_needs_is_refused_when_it_answers() -> None:
    situation = Situation().with_settings(model={"width": 512, "layers": 8})
    situation.hardware("judge", memory_bytes=2**30)
    with pytest.raises(DeclarationError, match="judge: ram_gb: its memory cannot hold the training"):
        situation.plan()


def test_everything_about_every_host_is_told_at_once() -> None:
    situation = Situation()
    situation.hardware("judge", architecture="aarch64", systemd=False)
    situation.hardware("architect", disk_free_bytes=0)
    situation.hardware("qfox", clock_skew_seconds=40.0)
    with pytest.raises(DeclarationError) as caught:
        situation.plan()
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 problems"
    assert [line.partition(":")[0] for line in lines[1:]] == ["- qfox", "- judge", "- judge", "- architect"]
