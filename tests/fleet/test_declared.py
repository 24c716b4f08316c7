"""Inventories as people write them, read by pyinfra itself: what they declare, or how they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.plans.situations import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

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
        (tmp_path / "inventory.py").write_text(inventory, encoding="utf-8")
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
        (TWO.replace(JUDGE, '("@tailscale/judge", 8)'), "no dictionary as its second part"),
        (TWO.replace(JUDGE, '"@tailscale/judge"'), "3 problems"),
        (TWO.replace(JUDGE, "()"), "an entry of compute has 0 parts"),
    ],
)
def test_wrong_inventories_are_refused_in_one_sentence(declare: Declare, inventory: str, words: str) -> None:
    refused(declare(inventory), words)


@pytest.mark.parametrize(
    ("inventory", "words"),
    [
        (f"primary = [{QFOX}]\ncompute = {{'judge'}}\n", "compute is no list of hosts"),
        (f"primary = [{QFOX}]\ncompute = 'judge'\n", "inventory.py, line 2: compute is no list of hosts"),
        (
            f"primary = [{QFOX}]\ncompute = [{{'judge': 1}}]\n",
            "inventory.py, line 2: an entry of compute is no",
        ),
        (TWO.replace(JUDGE, JUDGE[:-1] + ', {"_sudo": True})'), "an entry of compute has 3 parts"),
        (TWO.replace(JUDGE, '(5, {"cores": 1})'), "an entry of compute has no name"),
        (TWO.replace("@tailscale/judge", " "), "an entry of compute has no name"),
        (TWO.replace('"cores": 4', '"cores": 4, "cores": 8'), "says 'cores' more than once"),
        (TWO + "compute = []\n", "lines 2 and 3: compute is set twice, so the hosts of the first"),
        (TWO.replace("primary =", "primry ="), "Did you mean primary?"),
        (TWO.replace('"cores": 4', '5: 4, "cores": 4'), "judge: 5: a key that is no text"),
        ("raise SystemExit(3)\n", "inventory.py: ends the program instead of naming hosts"),
        ("import sys; sys.exit()\n", "ends the program"),
        ("primary = ()\n", "pyinfra cannot use it"),
        ("primary = [str(1)[:0]]\n", "pyinfra cannot use it"),
        (TWO.encode("utf-16").decode("latin1"), "inventory.py"),
        ("x = '\0'\n", "inventory.py"),
        ("x = " + "(" * 500 + ")" * 500 + "\n", "inventory.py"),
        ("return 1\n", "inventory.py, line 1: cannot be read"),
    ],
)
def test_slips_that_python_and_pyinfra_let_pass_are_refused(
    declare: Declare, inventory: str, words: str
) -> None:
    refused(declare(inventory), words)


def test_a_group_may_have_data_of_its_own_and_grow(declare: Declare) -> None:
    found = declare(f"primary = ([{QFOX}], {{'ssh_user': 'me'}})\ncompute = []\ncompute += [{JUDGE}]\n")
    assert [name for name, _, _ in found["nodes"]] == ["qfox", "judge"]
    assert len(declare(f"primary = [{QFOX}]\ncompute = []\n")["nodes"]) == 1


HOST_SETTINGS = [
    ('"ssh_user": 5', "judge: ssh_user: wrong value (found 5, expected a text)"),
    ('"ssh_user": ""', "judge: ssh_user: wrong value (found '', expected a user's name)"),
    ('"_sudo": "yes"', "judge: _sudo: wrong value (found 'yes', expected True or False)"),
    ('"ssh_port": "22"', "judge: ssh_port: wrong value (found '22', expected a whole number)"),
    ('"ssh_port": 99999', "a port from 1 to 65535"),
    ('"ssh_usr": "me"', "judge: ssh_usr: no such key (expected ssh_user). Did you mean ssh_user?"),
    ('"_sud0": True', "Did you mean _sudo?"),
    ('"ssh_nonsense_xyz": 1', "Start its name with _ if it is your own"),
    ('"tailscale_silence": -5', "seconds, above 0"),
    ('"tailscale_chek_timeout": 5', "Did you mean tailscale_check_timeout?"),
    ('"ssh_connect_retries": -1', "0 or more"),
    ('"_env": ["a"]', "expected a dictionary"),
    ('"_su_user": 5', "expected a text"),
    ('"ssh_paramiko_connect_kwargs": {"nonsense": 1}', "arguments that paramiko's connect() has"),
    ('"ssh_config_file": "/no/such/file"', "a file that is there"),
    ('"ssh_file_transfer_protocol": "ftp"', '"sftp" or "scp"'),
    ('"ssh_strict_host_key_checking": "maybe"', '"accept-new"'),
]


@pytest.mark.parametrize(("said", "words"), HOST_SETTINGS)
def test_wrong_words_about_logging_in_are_refused(declare: Declare, said: str, words: str) -> None:
    refused(declare(TWO.replace('"cores": 4', f'"cores": 4, {said}')), words)


def test_a_password_is_never_shown(declare: Declare) -> None:
    found = refused(
        declare(TWO.replace('"cores": 4', '"cores": 4, "_sudo_password": 1234')), "_sudo_password"
    )
    assert "1234" not in found["refused"]


def test_words_about_logging_in_are_looked_at_wherever_they_are(declare: Declare) -> None:
    refused(declare(training=TRAINING + "ssh_user = 5\n"), "group_data/all.py: ssh_user: wrong value")
    refused(declare(compute='_sudo = "yes"\n'), "group_data/compute.py: _sudo: wrong value")
    refused(declare(compute="", override={"ssh_port": "x"}), "--data: ssh_port: wrong value")


def test_words_of_one_s_own_are_left_alone(declare: Declare) -> None:
    own = '"_rack": 3, "_note": "x", "tailscale_ip": "100.64.0.3", "_sudo": True, "ssh_port": 2222'
    assert "nodes" in declare(TWO.replace('"cores": 4', f'"cores": 4, {own}'))


def test_everything_that_is_wrong_is_told_at_once(declare: Declare) -> None:
    inventory = TWO.replace('"cores": 4', '"cores": "4"').replace('"ram_gb": 8', '"ssh_usr": "me"')
    lines = declare(inventory, TRAINING + "modle = {}\ntraining = {'seed': -1}\n")["refused"].splitlines()
    assert lines[0] == "5 problems"
    for word in ("judge: cores:", "judge: ram_gb: missing", "ssh_usr", "modle", "training.seed"):
        assert sum(word in line for line in lines) == 1, word


def test_files_that_cannot_be_read_are_told_at_once(declare: Declare, tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "gone.py").symlink_to("/no/such/file")
    (tmp_path / "group_data" / "folder.py").mkdir()
    (tmp_path / "group_data" / "old.py").write_bytes("x = 'é'\n".encode("latin1"))
    lines = refused(declare("primary = [\n", "seed = (\n"), "inventory.py, line 1")["refused"].splitlines()
    for word in ("all.py, line 1", "gone.py: cannot be read: No such file", "folder.py", "old.py: cannot be"):
        assert sum(word in line for line in lines) == 1, (word, lines)


def test_group_data_that_nobody_would_have_is_named(declare: Declare) -> None:
    refused(
        declare(comptue='ssh_user = "me"\n'), "group_data/comptue.py: no group has this name", "compute.py?"
    )


def test_group_data_of_a_tag_need_nobody(declare: Declare) -> None:
    assert "nodes" in declare(gpu='ssh_user = "me"\n')


def test_a_path_may_begin_at_home(declare: Declare) -> None:
    home = declare(training=TRAINING.replace("prose.parquet", "~/prose.parquet") + 'wheels = "~/wheels"\n')
    assert home["files"] == [f"{Path.home()}/prose.parquet", f"{Path.home()}/wheels"]
    refused(declare(training=TRAINING.replace("prose", "~nobody-at-all/prose")), "there is no such user here")


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
        declare(training=f'{TRAINING}distribution_strategy = "pipelineParallel"\n'),
        "pipelineParallel with decentralized",
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
