"""Undoing what deploys did, on three real hosts: all of it, interrupted, and begun anew."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import state
from lab.cache import locked
from lab.lab import Lab
from lab.settings import Settings
from tailtrain.data import send
from tailtrain.data.backends.program import find_program
from tailtrain.fleet import lock_program
from tailtrain.planning.receipt import Login, Receipt
from tests.lab.project import STATE, Project

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.lab

HOSTS = ("alpha", "beta", "gamma")
INVENTORY = """
primary = [("@tailscale/alpha", {"cores": 2, "ram_gb": 1, "storage_gb": 10})]
compute = [
    ("@tailscale/beta", {"cores": 1, "ram_gb": 1, "storage_gb": 10, "ssh_user": "deploy", "_sudo": True}),
    ("@tailscale/gamma", {"cores": 1, "ram_gb": 1, "storage_gb": 10}),
]
"""
# All that carries our name or belongs to nobody; the lab's own file is not ours.
REMAINS = (
    "find / -xdev '(' -name '*tailtrain*' -o -nouser -o -nogroup ')' ! -name tailtrain-lab.json;"
    " getent passwd tailtrain; getent group tailtrain;"
    " systemctl list-units --all --plain --no-legend 'tailtrain*';"
    " systemctl list-unit-files --no-legend 'tailtrain*'; pgrep -f '[t]ailtrain.worker'; true"
)
IDLE_PYTHON = """\
#!/bin/sh
case "$*" in *tailtrain.worker*) exec sleep 600;; esac
exec /usr/bin/python3 "$@"
"""
# Runs inside pyinfra, whose own inventory does not have the host.
DRAINING = """
from pyinfra import context
from tailtrain.fleet import departed, undo
from tailtrain.data import send
from tailtrain.fleet import lock_program
from tailtrain.planning.receipt import Login

logins = {"beta": Login("deploy", sudo=True), "nobody": Login()}
found = departed.connect(logins, context.ctx_state.get())
undo.drain(found["beta"])
for one in departed.for_planning(logins, found, ()):
    print(one.name, "gone" if one.gone else "there", one.working, (one.bytes or 0) > 1_000_000)
departed.disconnect(found)
"""


class Trio(Project):
    """Three small hosts of their own, one with a login user and sudo, and a project for them."""

    def __init__(self, lab: Lab, folder: object) -> None:
        super().__init__(lab, folder)  # type: ignore[arg-type]
        (self.folder / "inventory.py").write_text(INVENTORY)

    def install(self) -> None:
        """Everything but the training."""
        done = self.run("pyinfra", "-y", "inventory.py", "deploys/provision.py", "deploys/distribute.py")
        assert done.returncode == 0, done.stderr[-3000:]

    def destroy(self, code: int, *words: str) -> str:
        """What `tailtrain destroy` says, that has to end with this exit code."""
        done = self.run("tailtrain", "destroy", *words)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def remains(self, host: str) -> str:
        return self.on(host, REMAINS).strip()

    def give_environments(self) -> None:
        """Let all hosts have a worker's environment again, as nothing here trains.

        The primary gets the one of its system, 30,000 files that take long to remove; the others a worker
        that does nothing, and what chunks are served and fetched with.
        """
        primary, *others = HOSTS
        self.lab.host(primary).power_cut()
        (self.lab.settings.host_dir(primary) / "upper/opt/tailtrain").unlink(missing_ok=True)
        self.lab.host(primary).boot()
        place = self.on(primary, "echo /opt/tailtrain/env/*").strip()
        for host in others:
            # Unequal speeds are of no interest here.
            self.lab.host(host).set_cpu_quota(None)
            self.on(host, f"mkdir -p {place}/bin")
            self.lab.host(host).put(Path(find_program({})), f"{place}/bin/rclone")
            self.lab.host(host).run("tee", f"{place}/bin/python", input=IDLE_PYTHON, stdin=None)
            self.on(host, f"chmod 755 {place}/bin/*; touch {place}/.complete")


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    if state.inside(Settings.from_environment()):
        pytest.skip("makes a lab of its own, so it needs the machine itself, not `lab exec`")
    with locked(Settings(name="undo-tests").lock_file):  # one test run at a time
        lab = Lab(Settings(name="undo"))
        lab.down()
        trio = Trio(lab, tmp_path_factory.mktemp("trio"))
        lab.up(trio.folder / "inventory.py", bare=HOSTS[1:])
        trio.give_environments()
        trio.install()
        yield trio
        lab.down()


def test_a_plan_comes_first_and_without_a_yes_nothing_is_done(trio: Trio) -> None:
    said = trio.destroy(1)
    assert "remove /var/lib/tailtrain\n" in said
    assert "Undo: 3 of 3 hosts" in said
    assert "add --yes" in said
    typed = ("script", "-qec", "tailtrain destroy", "/dev/null")
    done = trio.lab.on_control(typed, cwd=trio.folder, check=False, input="2\n", stdin=None)
    assert "Type the number of hosts to do it" in done.stdout
    assert "nothing was changed" in done.stdout
    assert done.returncode == 1
    for host in HOSTS:
        assert trio.on(host, f"test -d {STATE}/chunks && test -f /etc/tailtrain/worker.json && echo there")


def test_while_somebody_deploys_nothing_is_undone(trio: Trio) -> None:
    request = {
        "do": "hold", "folder": lock_program.FOLDER, "token": "f00d", "who": "me@elsewhere", "plan": "a plan",
        "expected": 0, "resumes": False, "silence_seconds": 60.0,
    }  # fmt: skip
    deploys = trio.on("alpha", f"cat {lock_program.FOLDER}/last.json 2>/dev/null || echo '{{}}'")
    request["expected"] = json.loads(deploys).get("deploys", 0)
    command = trio.lab.host("alpha").command(shlex.split(send.command()))
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        holder.stdin.write(send.program(lock_program) + json.dumps(request).encode() + b"\n")
        holder.stdin.flush()
        trio.on("alpha", f"until test -s {lock_program.FOLDER}/holder.json; do sleep 0.1; done")
        said = trio.destroy(4, "--yes")
        assert "me@elsewhere is deploying plan a plan" in said
        assert "tailtrain unlock f00d" in said
        holder.stdin.close()
    assert trio.on("gamma", f"test -d {STATE}/chunks && echo there")


def test_a_folder_on_a_disk_of_its_own_is_named_and_nothing_there_is_touched(trio: Trio) -> None:
    trio.on("gamma", f"mkdir /srv/disk; cp -a {STATE}/. /srv/disk; mount --bind /srv/disk {STATE}")
    try:
        said = trio.destroy(1, "gamma", "--yes")
        assert "gamma: refused, nothing is touched there\n  /var/lib/tailtrain is a mount point" in said
        assert trio.on("gamma", f"ls {STATE}/chunks /etc/tailtrain/worker.json")
    finally:
        trio.on("gamma", f"umount {STATE}; rm -r /srv/disk")


def test_a_host_that_left_is_drained_from_within_a_deploy_of_the_others(trio: Trio) -> None:
    trio.on("beta", "systemctl enable --quiet --now tailtrain-worker")
    inventory = trio.folder / "inventory.py"
    inventory.write_text('primary = [("@tailscale/alpha", {"cores": 2, "ram_gb": 1, "storage_gb": 10})]\n')
    (trio.folder / "deploys" / "draining.py").write_text(DRAINING)
    done = trio.run("pyinfra", "-y", "inventory.py", "deploys/draining.py")
    assert done.returncode == 0, done.stderr
    assert "beta there False True" in done.stdout, done.stdout
    assert "nobody gone False False" in done.stdout
    shown = trio.on(
        "beta", "systemctl is-active tailtrain-worker; systemctl is-enabled tailtrain-worker; true"
    )
    assert shown.split() == ["inactive", "disabled"]


def test_a_host_that_left_is_known_from_receipts_and_leaves_nothing(trio: Trio) -> None:
    fleet = {"alpha": Login(), "beta": Login("deploy", sudo=True)}
    receipt = Receipt(
        plan="p", run="r", by="me", at="2026-01-01T00:00:00+00:00", files={}, code="c", environment="e",
        peer_id="i", cores=1, memory_bytes=1, gpus=0, fleet=fleet,
    ).encode()  # fmt: skip
    trio.lab.host("alpha").run("tee", f"{STATE}/receipt.json", input=receipt.decode(), stdin=None)
    said = trio.destroy(0, "beta", "--yes")
    assert "beta  departed  inactive" in said
    assert "Looked again: nothing of tailtrain's is left on beta." in said
    assert trio.remains("beta") == ""
    assert "Nothing to undo on 1 host." in trio.destroy(0, "beta", "--yes")
    (trio.folder / "inventory.py").write_text(INVENTORY)
    assert "nobody" in trio.destroy(1, "nobody", "--yes")


def test_killed_midway_it_is_finished_by_the_next_one_and_a_host_that_is_away_is_unknown(trio: Trio) -> None:
    trio.lab.host("gamma").power_cut()
    command = trio.lab.control_command(("tailtrain", "destroy", "--yes"), cwd=trio.folder)
    kill = (
        "test -d /opt/tailtrain/env && ! ls /opt/tailtrain/env/*/.complete >/dev/null 2>&1"
        " && pkill -KILL -f '^python3 -IS -c' && echo killed; true"
    )

    with subprocess.Popen(
        command,
        env=trio.lab.control_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 120
        while "killed" not in trio.on("alpha", kill):
            assert time.monotonic() < deadline
            assert process.poll() is None, "it was quicker than its killer"
        said = process.communicate()[0]
    assert process.returncode == 1
    assert "alpha  failed   the removal did not come to its end" in said
    assert "beta   not run  nothing of tailtrain's was there" in said
    assert "gamma  unknown  could not be reached" in said
    assert trio.remains("alpha") != ""
    said = trio.destroy(3, "--yes")
    assert "alpha  done " in said
    assert "gamma  unknown" in said
    assert trio.remains("alpha") == ""
    trio.lab.host("gamma").boot()
    assert "gamma  done " in trio.destroy(0, "--yes")
    assert trio.remains("gamma") == ""
    assert "Nothing to undo on 3 hosts." in trio.destroy(0, "--yes")


def test_a_first_install_after_an_undo_works(trio: Trio) -> None:
    trio.give_environments()
    trio.install()
    done = trio.run("tailtrain", "plan")
    assert done.returncode == 2, done.stderr
    assert "first install" not in done.stdout
    for host in HOSTS:
        assert trio.on(host, "systemctl cat tailtrain-worker >/dev/null && id -u tailtrain").strip().isdigit()


def test_runs_that_are_kept_stay_with_their_account(trio: Trio) -> None:
    trio.on("beta", f"install -d -o tailtrain {STATE}/runs/0123; touch {STATE}/runs/0123/status.json")
    said = trio.destroy(0, "beta", "--keep-runs", "--yes")
    assert "nothing of tailtrain's but the runs is left on beta" in said
    assert trio.on("beta", f"find {STATE} -type f").split() == [f"{STATE}/runs/0123/status.json"]
    assert trio.on("beta", f"stat -c %U {STATE}/runs/0123").strip() == "tailtrain"
    assert "Nothing else to undo on 1 host." in trio.destroy(0, "beta", "--keep-runs", "--yes")
