"""Inventories as people write them, read by pyinfra itself: what they declare, or how they are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Declare = Callable[..., dict[str, Any]]

QFOX = '("@tailscale/qfox", {"cores": 16, "ram_gb": 32, "gpu": True, "storage_gb": 800})'
JUDGE = '("@tailscale/judge", {"cores": 4, "ram_gb": 8, "storage_gb": 200})'
TWO = f"primary = [{QFOX}]\ncompute = [{JUDGE}]\n"
TRAINING = """
coordination_protocol = "decentralized"
storage_backend = "local"
resource_allocation = "declared_cores"
load_balancing = "static"
datasets = {"natural": "prose.parquet"}
"""


@pytest.fixture
def declare(ask_declared: Declare, tmp_path: Path) -> Declare:
    def ask(
        inventory: str = TWO, training: str = TRAINING, override: dict[str, Any] | None = None, **groups: str
    ) -> dict[str, Any]:
        (tmp_path / "inventory.py").write_text(inventory)
        (tmp_path / "group_data").mkdir(exist_ok=True)
        for group, text in {"all": training, **groups}.items():
            (tmp_path / "group_data" / f"{group}.py").write_text(text)
        return ask_declared(folder=str(tmp_path), override=override or {})

    return ask


def refused(found: dict[str, Any], *words: str) -> dict[str, Any]:
    assert "refused" in found, found
    assert found["declaration"]
    for word in words:
        assert word in found["refused"]
    return found


def test_a_fleet_is_read_in_the_inventory_s_order(declare: Declare) -> None:
    found = declare()
    assert found["nodes"] == [["qfox", "primary", 16], ["judge", "compute", 4]]
    assert found["reserves"] == {"qfox": [0, 0, None], "judge": [0, 0, None]}
    assert found["protocol"] == "decentralized"


def test_the_project_s_own_files_are_a_fleet_of_six(declare: Declare) -> None:
    found = declare((PROJECT / "inventory.py").read_text(), (PROJECT / "group_data" / "all.py").read_text())
    assert [name for name, _, _ in found["nodes"]] == [
        *("qfox", "architect", "judge", "ip-172-31-25-81", "netcup-router", "racknerd-510bd9c")
    ]


def test_what_a_host_keeps_is_read_with_it(declare: Declare) -> None:
    kept = JUDGE.replace(
        "}", ', "reserve_cores": 1, "reserve_ram_gb": 2, "nice": 15, "ssh_user": "me", "_sudo": True}'
    )
    assert declare(f"primary = [{QFOX}]\ncompute = [{kept}]\n")["reserves"]["judge"] == [1, 2, 15]


@pytest.mark.parametrize(
    ("inventory", "found_words"),
    [
        (f"primary = [{QFOX}]\ncompute = [{JUDGE}, {JUDGE}]\n", "found compute 2 times"),
        (f"primary = [{QFOX}]\ncompute = [{QFOX}, {JUDGE}]\n", "found primary, compute"),
        (f"primary = [{QFOX}, {QFOX}]\ncompute = [{JUDGE}]\n", "found primary 2 times"),
        (TWO.replace("compute = [", 'compute = ["qfox", '), "found compute, primary"),
        (TWO.replace("compute = [", 'compute = ["@tailscale/qfox.", '), "found primary, compute"),
    ],
    ids=[
        "twice in one group",
        "in both roles",
        "two primaries alike",
        "plain beside @tailscale",
        "with a dot",
    ],
)
def test_a_host_that_pyinfra_would_merge_is_refused(
    declare: Declare, inventory: str, found_words: str
) -> None:
    found = refused(declare(inventory), "named more than once", found_words)
    assert found["field"] == "inventory.py"


def test_a_host_in_no_role_is_refused(declare: Declare) -> None:
    found = refused(declare(TWO + f"spare = [{JUDGE.replace('judge', 'idle')}]\n"), "a host without a role")
    assert found["host"] == "idle"
    assert "spare" in found["refused"]


def test_a_list_that_became_a_group_by_accident_is_named(declare: Declare) -> None:
    found = refused(declare(TWO + 'mirrors = ["deb.example.org"]\n'), "a host without a role", "mirrors")
    assert found["host"] == "deb.example.org"


def test_a_list_that_is_no_group_does_no_harm(declare: Declare) -> None:
    assert len(declare("_names = ['a', 'b']\nnumbers = {'x': 1}\n" + TWO)["nodes"]) == 2


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        (f"compute = [{JUDGE}]\n", "the fleet has no primary"),
        (f"primary = [{QFOX}, {JUDGE}]\n", "more than one primary"),
        (TWO.replace('"cores": 4', '"cores": -4'), "cores"),
        (TWO.replace('"cores": 4', '"cores": "4"'), "cores: not a whole number"),
        (TWO.replace('"cores": 4, ', ""), "cores: missing"),
        (TWO.replace('"cores": 4', '"vcpus": 4'), 'Did you mean "cores"?'),
        (TWO.replace("@tailscale/judge", "@tailscale/-rf"), "-rf"),
        ("", "names no hosts"),
        ("primary = []\n", "names no hosts"),
        (TWO.replace("@tailscale/judge", "@nowhere/judge"), "Invalid connector: nowhere"),
        (TWO.replace(JUDGE, '("@tailscale/judge", 8)'), "pyinfra cannot use it"),
        (TWO.replace(JUDGE, '"@tailscale/judge"'), "3 problems in the declaration"),
        (TWO.replace(JUDGE, "()"), "pyinfra cannot use it"),
    ],
)
def test_wrong_inventories_are_refused_in_one_sentence(declare: Declare, inventory: str, words: str) -> None:
    refused(declare(inventory), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("primary = [\n", "inventory.py, line 1"),
        ("x = 1\nprimary = nobody\n", "inventory.py, line 2: cannot be read: NameError"),
        ("import no_such_module\n", "inventory.py, line 1: cannot be read: ModuleNotFoundError"),
        ("def f():\n    raise ValueError('from within')\n\nf()\n", "inventory.py, line 2"),
    ],
)
def test_a_file_that_python_cannot_read_is_named_with_its_line(
    declare: Declare, text: str, words: str
) -> None:
    refused(declare(text), words)


def test_so_is_group_data(declare: Declare) -> None:
    refused(declare(training="seed = 1\nmodel = {\n"), "group_data/all.py, line 2: cannot be read")
    refused(declare(training=TRAINING + "model = 1 / 0\n"), "group_data/all.py, line 7", "ZeroDivisionError")


def test_unknown_settings_are_refused_with_the_near_one(declare: Declare) -> None:
    refused(declare(training=TRAINING + "fault_tolerence = True\n"), "Did you mean fault_tolerance?")
    refused(declare(training=TRAINING + 'helper = "mine"\n'), "Start its name with _ if it is your own")
    assert "nodes" in declare(training=TRAINING + '_helper = "mine"\nssh_user = "root"\n')


def test_imports_of_group_data_are_no_settings(declare: Declare) -> None:
    assert "nodes" in declare(training="from pathlib import Path\nimport os\n" + TRAINING)


def test_data_of_the_command_line_override_group_data(declare: Declare) -> None:
    found = declare(override={"coordination_protocol": "centralized", "training": {"seed": 99}})
    assert (found["protocol"], found["seed"]) == ("centralized", 99)
    refused(declare(override={"coordination_protocl": "centralized"}), "Did you mean coordination_protocol?")


def test_what_this_version_cannot_carry_out_is_refused_by_name(declare: Declare) -> None:
    found = refused(
        declare(training=TRAINING.replace("decentralized", "eneGossip")), "dataParallel with eneGossip"
    )
    assert found["kind"] == "UnsupportedError"


def test_a_setting_of_the_training_in_a_group_of_its_own_is_refused(declare: Declare) -> None:
    found = refused(declare(compute="data_sharding = False\n"), "one for the whole fleet")
    assert found["field"] == "group_data/compute.py: data_sharding"
    assert "nodes" in declare(compute='ssh_user = "debian"\n_sudo = True\n')


def test_a_setting_of_the_training_beside_a_host_is_refused(declare: Declare) -> None:
    found = refused(
        declare(TWO.replace('"cores": 4', '"cores": 4, "training": {"seed": 1}')), "one for the whole fleet"
    )
    assert found["host"] == "judge"


def test_no_group_data_at_all_says_what_is_missing(declare: Declare) -> None:
    refused(declare(training=""), "group_data: datasets")
