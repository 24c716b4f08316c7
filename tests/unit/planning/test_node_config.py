"""worker.json says what the plan says, whatever the values hold; a template that does not is an error."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.planning.choices import Choices, declared_choices
from tailtrain.planning.node_config import FleetSpans, NodeLimits, Peer, Spans, worker_document
from tailtrain.planning.placement import Range
from tailtrain.planning.settings import parse_settings
from tailtrain.planning.storage_plan import PlannedStorage
from tailtrain.planning.templates import Templates
from tests.plans.situations import DATASETS, PROJECT, SETTINGS, templates

LIMITS = NodeLimits(
    threads=2, usable_cores=1.5, cpu_quota_percent=200, memory_bytes=2**31, device="cpu", nice=5
)
HOSTILE = [
    '"',
    "'",
    "\\",
    "\n",
    "\r\n",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "{# x #}",
    "}}",
    "</script>",
    "\x00",
    "\x1b[2J",
]
HOSTILE += ["\u2028", "\x85", "é", "日本", "\ud800", "$(reboot)", "`id`", "; rm -rf /", "%n", "-e", " ", ""]
WORKER = "worker.json.j2"


def document(text: str, number: float = 12.0) -> dict[str, object]:
    """A node's document with this text wherever text can stand."""
    me = Peer(text, "compute", text, 45001, text)
    other = Peer(f"{text}2", text, text, 45001, text)
    settings = parse_settings({**SETTINGS, "training": {"round_seconds": number}})
    first = DATASETS[0].train[0].sha256
    placement: dict[str, tuple[Range, ...]] = {text: (Range(first, 0, 120), Range(text, 1, 2))}
    return worker_document(
        run_id=text,
        me=me,
        peers=[me, other],
        quorum=2,
        limits=LIMITS,
        settings=settings,
        datasets=DATASETS,
        placements={"natural": placement, "coding": {}},
        spans={
            "natural": FleetSpans(
                {text: Spans([[0, 0, 0, 1]]), f"{text}2": Spans([[0, 1, 3, 7], [9, 0, 9, 4]])}
            )
        },
        rclone=text,
        storage=PlannedStorage(text, text, (text,)),
        choices=replace(declared_choices(settings), compression=text, reducers={text: number}),
        code=text,
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_stay_values(text: str) -> None:
    wanted = document(text)
    rendered = templates().render_worker("qfox", wanted)
    assert json.loads(rendered) == wanted
    assert rendered.isascii()
    rendered.encode()


@given(st.text(st.characters(codec=None)), st.floats(0.001, 86_400))
def test_any_text_and_number_are_read_back_as_they_were(text: str, number: float) -> None:
    wanted = document(text, number)
    assert json.loads(templates().render_worker("qfox", wanted)) == wanted


def test_one_value_a_line_so_that_a_diff_shows_what_changed() -> None:
    lines = templates().render_worker("qfox", document("qfox")).splitlines()
    assert sum('"learning_rate"' in line for line in lines) == 1
    assert '    "learning_rate": 0.003,' in lines
    assert '        "qfox2": [[0, 1, 3, 7], [9, 0, 9, 4]]' in lines
    assert f'        ["{DATASETS[0].train[0].sha256}", 0, 120],' in lines


def test_the_document_is_the_contract_with_the_worker() -> None:
    wanted: dict[str, Any] = document("qfox")
    assert list(wanted) == [
        *("run_id", "node", "role", "seed", "device", "threads", "usable_cores", "state_dir"),
        *("model", "training", "coordination", "data", "storage", "validation"),
    ]
    assert "seed" not in wanted["training"]
    assert wanted["training"]["fault_tolerance"] is True
    assert [peer["node"] for peer in wanted["coordination"]["peers"]] == ["qfox2"]
    assert set(wanted["coordination"]["peers"][0]) == set(asdict(Peer("", "", "", 0, "")))


def test_in_a_deterministic_run_a_node_trains_steps_by_its_share_of_the_records() -> None:
    me = Peer("a", "compute", "100.64.0.1", 45001, "1")
    engine = {"deterministic": True, "steps_per_round": 50}
    placement: dict[str, tuple[Range, ...]] = {
        "a": (Range("0" * 64, 0, 80),),
        "b": (Range("0" * 64, 80, 120),),
        "c": (Range("1" * 64, 0, 1),),
    }
    steps = {
        name: worker_document(
            run_id="0",
            me=replace(me, node=name),
            peers=[me],
            quorum=1,
            limits=LIMITS,
            settings=parse_settings({**SETTINGS, "engine": engine}),
            datasets=DATASETS,
            placements={"natural": placement, "coding": {}},
            spans={},
            rclone="",
            storage=None,
            choices=Choices(12.0, 60.0),
            code="",
        )["training"]["steps_per_round"]  # type: ignore[index]  # a section of the document
        for name in ("a", "b", "c", "d")
    }
    assert steps == {"a": 50, "b": 25, "c": 1, "d": 1}


def refusal(source: str, include: str = "", wanted: dict[str, object] | None = None) -> DeclarationError:
    """What a template of this text is refused with."""
    own = Templates({WORKER: source, "part.j2": include})
    with pytest.raises(DeclarationError) as caught:
        own.render_worker(
            "judge", {"node": "judge", "on": True, "seconds": 12.0} if wanted is None else wanted
        )
    assert caught.value.host == "judge"
    return caught.value


@pytest.mark.parametrize(
    ("source", "include", "place", "words"),
    [
        ("{\n{{ nobody }}\n}", "", f"templates/{WORKER}, line 2", "'nobody' is undefined"),
        ("{\n\n{{ node.name.first }}", "", f"templates/{WORKER}, line 3", "has no attribute 'name'"),
        ("{\n{% for x %}", "", f"templates/{WORKER}, line 2", "cannot be read"),
        ("{\n{{ node | nofilter }}", "", f"templates/{WORKER}, line 2", "nofilter"),
        ("\n{{ 1 / 0 }}", "", f"templates/{WORKER}, line 2", "division by zero"),
        ("{{ node + 1 }}", "", f"templates/{WORKER}, line 1", "cannot be rendered"),
        ("{% include 'part.j2' %}", "\n\n{{ gone }}", "templates/part.j2, line 3", "'gone' is undefined"),
        ("{% include 'part.j2' %}", "\n{% if %}", "templates/part.j2, line 2", "cannot be read"),
        ("{% include 'none.j2' %}", "", "templates/none.j2", "no such template"),
        ("{% include 'worker.json.j2' %}", "", f"templates/{WORKER}, line 1", "recursion"),
    ],
)
def test_a_wrong_template_is_named_with_its_line(source: str, include: str, place: str, words: str) -> None:
    error = refusal(source, include)
    assert error.field == place
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ('{"node": "other", "on": true, "seconds": 12.0}', "node"),
        ('{"node": "judge", "on": 1, "seconds": 12.0}', "on"),
        ('{"node": "judge", "on": true, "seconds": 12}', "seconds"),
        ('{"node": "judge", "on": "true", "seconds": 12.0}', "on"),
        ('{"node": "judge", "on": true}', "seconds"),
        ('{"node": "judge", "on": true, "seconds": 12.0, "more": null}', "more"),
        ("{}", "node, on, seconds"),
        ("[]", "node, on, seconds"),
        ("null", "node, on, seconds"),
    ],
)
def test_a_template_that_changes_a_value_is_refused(source: str, changed: str) -> None:
    error = refusal(source)
    assert error.problem == "leaves out or changes values that the plan decides"
    assert error.found == changed


def test_a_template_that_makes_no_json_is_refused() -> None:
    assert refusal("{node: {{ node }}}").problem.startswith("does not make JSON")
    assert refusal("").problem.startswith("does not make JSON")


def test_unquoted_text_cannot_smuggle_a_value_in() -> None:
    """A template that forgets `tojson` is caught as soon as a value would have made use of it."""
    source = '{"node": "{{ node }}", "role": "compute"}'
    own = Templates({WORKER: source})
    assert own.render_worker("judge", {"node": "judge", "role": "compute"})
    with pytest.raises(DeclarationError, match="changes values"):
        own.render_worker("judge", {"node": 'x", "role": "primary', "role": "compute"})


def test_the_project_s_templates_are_all_used() -> None:
    names = {path.name for path in (PROJECT / "templates").iterdir()}
    assert names == {
        WORKER,
        "tailtrain-worker.service.j2",
        "tailtrain-validate.service.j2",
        "tailtrain-chunks.service.j2",
        "tailtrain-serf.service.j2",
        "sharded.json.j2",
        "worker-sandbox.j2",
        "tailnet-policy.hujson.j2",  # for no host: `tailtrain policy` writes it
    }
