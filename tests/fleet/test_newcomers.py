"""devices, add, init, invite and policy as a person meets them, and what is read of a machine's hardware."""

from __future__ import annotations

import getpass
import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data import send
from tailtrain.fleet import newcomers
from tailtrain.planning import layout
from tests.fleet.test_cli import TAILTRAIN, TRAINING, Ended, one_sentence
from tests.plans.situations import PROJECT
from tests.unit.tailnet.admin_documents import API_KEY, JOIN_KEY, device
from tests.unit.tailnet.admin_stand_in import AdminStandIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RUNNING = PROJECT / "tests/unit/tailnet/data/running.json"
INVENTORY = 'primary = [("@tailscale/qfox", {"cores": 3, "ram_gb": 8, "storage_gb": 100})]\n'
NO_CREDENTIALS = {
    "TAILSCALE_API_KEY": "",
    "TAILSCALE_OAUTH_CLIENT_ID": "",
    "TAILSCALE_OAUTH_CLIENT_SECRET": "",
    "TAILSCALE_TAILNET": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one node of the recorded tailnet."""
    folder = tmp_path / "project"
    (folder / "group_data").mkdir(parents=True)
    (folder / "inventory.py").write_text(INVENTORY)
    (folder / "group_data" / "all.py").write_text(TRAINING)
    (folder / "templates").symlink_to(PROJECT / "templates")
    return folder


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminStandIn]:
    stand_in = AdminStandIn(tmp_path_factory.mktemp("admin"))
    yield stand_in
    stand_in.close()


@pytest.fixture
def admin(_server: AdminStandIn) -> AdminStandIn:
    """Tailscale's admin API, as it answers at first."""
    _server.reset()
    return _server


@pytest.fixture
def run(ask_command: Callable[..., dict[str, Any]]) -> Callable[..., Ended]:
    """Run a command in a folder of the recorded tailnet, with credentials where the API is given."""

    def start(folder: Path, *arguments: str, admin: AdminStandIn | None = None) -> Ended:
        environment = {**NO_CREDENTIALS, "TAILTRAIN_STATUS_JSON": str(RUNNING)}
        if admin is not None:
            environment |= {**admin.environment, "TAILSCALE_API_KEY": API_KEY}
        return Ended(**ask_command(folder=str(folder), arguments=arguments, environment=environment))

    return start


def test_what_is_sent_to_a_machine_runs_there_and_reads_it() -> None:
    """Plain Python, with nothing of tailtrain or its packages."""
    request = json.dumps({"state": layout.STATE_DIR, "lab_marker": layout.LAB_MARKER}).encode()
    done = subprocess.run(
        ["/bin/sh", "-c", send.command(sys.executable)],
        input=send.program(*newcomers.PROGRAM) + request + b"\n",
        capture_output=True,
        check=True,
        cwd="/",
    )
    reply = json.loads(done.stdout)
    assert reply["root"] is (os.geteuid() == 0)
    assert reply["hardware"]["cores"] == len(os.sched_getaffinity(0))
    assert reply["hardware"]["memory_bytes"] > 0


def test_devices_without_credentials(run: Callable[..., Ended], project: Path) -> None:
    ended = run(project, "devices")
    assert ended.exit_code == 0, ended.stderr
    assert "tailtrain add judge --write" in ended.stdout
    assert "Not known without Tailscale's admin API" in ended.stdout
    row = next(line for line in ended.stdout.splitlines() if line.startswith("qfox"))
    assert row.endswith("primary")


def test_devices_with_the_admin_api(run: Callable[..., Ended], project: Path, admin: AdminStandIn) -> None:
    admin.behave(
        devices=[
            device("judge", "100.64.0.4", authorized=False),
            device("phone", "100.64.0.50", os="iOS"),
        ]
    )
    ended = run(project, "devices", admin=admin)
    assert ended.exit_code == 0, ended.stderr
    assert "judge  waits to be approved" in ended.stdout
    assert "phone  iOS: nodes are Linux" in ended.stdout
    assert "Not known" not in ended.stdout
    document = json.loads(run(project, "devices", "--json", admin=admin).stdout)
    assert document["admin_api"] is True
    assert [one["name"] for one in document["devices"] if one["os"] == "iOS"] == ["phone"]


def test_devices_that_the_inventory_names_and_nobody_bears(run: Callable[..., Ended], project: Path) -> None:
    (project / "inventory.py").write_text(INVENTORY.replace("qfox", "oldbox"))
    assert "oldbox  join it: tailtrain invite" in run(project, "devices").stdout


def test_devices_where_the_credentials_are_wrong(
    run: Callable[..., Ended], project: Path, admin: AdminStandIn
) -> None:
    admin.behave(error=(403, "user does not have access to this operation"))
    ended = run(project, "devices", admin=admin)
    one_sentence(ended, "may not list the devices")
    assert API_KEY not in ended.stderr


def test_init_never_writes_over_an_inventory(run: Callable[..., Ended], project: Path) -> None:
    one_sentence(
        run(project, "init"), "inventory.py: there is an inventory already", "tailtrain add", "--force"
    )
    assert (project / "inventory.py").read_text() == INVENTORY


def test_init_asks_nobody_of_whom_it_knows_that_it_is_in_vain(
    run: Callable[..., Ended], tmp_path: Path
) -> None:
    one_sentence(run(tmp_path, "init", "nosuch"), "nosuch: no machine of the tailnet has this name")
    one_sentence(run(tmp_path, "init", "--primary", "jugde"), "Did you mean judge?")
    assert not list(tmp_path.iterdir())


def test_add_says_what_is_there_already(run: Callable[..., Ended], project: Path) -> None:
    one_sentence(run(project, "add", "QFOX.lab.ts.net"), "qfox: inventory.py: is in the inventory already")
    one_sentence(run(project, "add", "nosuch"), "no machine of the tailnet has this name")
    (project / "inventory.py").unlink()
    one_sentence(run(project, "add", "judge", "--write"), "no such inventory", "tailtrain init")


def test_an_invitation_is_what_to_type(run: Callable[..., Ended], project: Path, admin: AdminStandIn) -> None:
    ended = run(project, "invite", "--show", "--expires", "90m", admin=admin)
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.count(JOIN_KEY) == 1
    assert f"sudo tailscale up --ssh --auth-key={JOIN_KEY}\n" in ended.stdout
    assert "curl -fsSL https://tailscale.com/install.sh | sh" in ended.stdout
    assert "(90 minutes), tagged tag:train." in ended.stdout
    assert "key kMadeCNTRL at https://login.tailscale.com/admin/settings/keys" in ended.stdout
    assert admin.asked[-1].json["expirySeconds"] == 5_400
    assert API_KEY not in ended.stdout


def test_no_key_is_made_for_a_file_or_a_pipe(
    run: Callable[..., Ended], project: Path, admin: AdminStandIn
) -> None:
    one_sentence(run(project, "invite", admin=admin), "no key was made", "--show")
    assert admin.asked == []


def test_a_key_is_shown_in_a_terminal(project: Path, admin: AdminStandIn) -> None:
    mine, its = pty.openpty()
    environment = {**os.environ, **NO_CREDENTIALS, **admin.environment, "TAILSCALE_API_KEY": API_KEY}
    with subprocess.Popen(
        [TAILTRAIN, "invite"], stdout=its, stderr=subprocess.PIPE, cwd=project, env=environment
    ) as process:
        os.close(its)
        assert process.stderr
        complaint = process.stderr.read()
    said = b""
    while piece := _read(mine):
        said += piece
    os.close(mine)
    assert process.returncode == 0, complaint
    assert JOIN_KEY.encode() in said


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # nobody writes any more
        return b""


def test_tags_of_an_invitation(run: Callable[..., Ended], project: Path, admin: AdminStandIn) -> None:
    admin.behave(tag_owners=("tag:gpu", "tag:train"))
    assert run(project, "invite", "--show", "--tag", "gpu", "--tag", "tag:train", admin=admin).exit_code == 0
    assert admin.asked[-1].json["capabilities"]["devices"]["create"]["tags"] == ["tag:gpu", "tag:train"]
    one_sentence(
        run(project, "invite", "--show", "--tag", "nobodys", admin=admin),
        "may not tag a machine tag:nobodys",
        '"tagOwners": {"tag:nobodys": ["autogroup:admin"]}',
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--expires", "soon"], "no span of time such as 30m, 1h or 2d"),
        (["--expires", "91d"], "is not from 1 minute to 90 days"),
        (["--expires", "1s"], "is not from 1 minute to 90 days"),
        (["--tag", "two words"], "is no tag"),
    ],
)
def test_an_invitation_that_cannot_be_made(
    run: Callable[..., Ended], project: Path, arguments: list[str], words: str
) -> None:
    ended = run(project, "invite", *arguments)
    assert ended.exit_code == 1
    assert words in ended.stderr


def test_an_invitation_needs_credentials(run: Callable[..., Ended], project: Path) -> None:
    one_sentence(run(project, "invite", "--show"), "needed to make a key", "TAILSCALE_API_KEY")


def test_the_policy_that_a_fleet_needs(run: Callable[..., Ended], project: Path) -> None:
    ended = run(project, "policy")
    assert ended.exit_code == 0, ended.stderr
    assert f'"users": ["{getpass.getuser()}"]' in ended.stdout
    assert '"ip": ["tcp:45001", "tcp:45002"]' in ended.stdout
    one_sentence(run(project, "policy", "--check"), "needed to check the policy")
    (project / "templates").unlink()
    one_sentence(run(project, "policy"), "no such template", "templates/")


def test_the_policy_is_checked(run: Callable[..., Ended], project: Path, admin: AdminStandIn) -> None:
    admin.behave(previews={"100.64.0.2:22": [{"users": ["alice@example.com"], "ports": ["*:22"]}]})
    fits = run(project, "policy", "--check", admin=admin)
    assert fits.exit_code == 0, fits.stderr
    assert "Nothing is lacking" in fits.stdout
    assert any(line.split() == ["qfox", "22", "alice@example.com"] for line in fits.stdout.splitlines())
    lacks = {"message": "test(s) failed", "data": [{"user": "alice@example.com", "errors": ["dropped"]}]}
    admin.behave(validation=[lacks])
    merge = run(project, "policy", "--check", admin=admin)
    assert merge.exit_code == 2, merge.stderr
    assert "alice@example.com: dropped" in merge.stdout
    assert "Merge and save them; nothing was saved here." in merge.stdout
    admin.behave(validation=[lacks, lacks])
    wrong = run(project, "policy", "--check", admin=admin)
    one_sentence(wrong, "still not right", "alice@example.com: dropped")
