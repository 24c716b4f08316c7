"""The connector against real tailscaled, on hosts that are there to be broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.conftest import SpareLab

pytestmark = pytest.mark.lab

SESSION = Path(__file__).with_name("pyinfra_session.py")
CHECKOUT = Path(__file__).resolve().parents[2]


class Session:
    """A pyinfra process on the control side that stays connected between commands."""

    def __init__(self, lab: SpareLab, names: list[str], **data: Any) -> None:
        words = [sys.executable, str(SESSION), json.dumps(names), json.dumps({"ssh_user": "root", **data})]
        self._process = subprocess.Popen(
            lab.control_command(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**lab.control_environment(), "PYTHONPATH": str(CHECKOUT)},
        )
        begun = self._read()
        self.connected: list[str] = begun["connected"]
        self.errors: dict[str, str] = begun["errors"]
        self.seconds: float = begun["seconds"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the session ended"
        read: dict[str, Any] = json.loads(line)
        return read

    def start(self, host: str, command: str, **options: Any) -> Callable[[], dict[str, Any]]:
        """Begin a command; calling the result waits for its end."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"host": host, "command": command, **options}) + "\n")
        self._process.stdin.flush()
        return self._read

    def run(self, host: str, command: str, **options: Any) -> dict[str, Any]:
        return self.start(host, command, **options)()

    def close(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture
def session(spare_lab: SpareLab) -> Iterator[Callable[..., Session]]:
    """Connects pyinfra to hosts of the spare lab."""
    opened: list[Session] = []

    def connect(*names: str, **data: Any) -> Session:
        opened.append(Session(spare_lab, [f"@tailscale/{name}" for name in names], **data))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def pyinfra(lab: SpareLab, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.on_control(
        ["pyinfra", *words],
        check=False,
        env={**lab.control_environment()},
    )


def test_pyinfra_itself_works_with_nothing_but_names(spare_lab: SpareLab) -> None:
    done = pyinfra(
        spare_lab,
        "-y",
        "--user",
        "root",
        "@tailscale/alpha,@tailscale/beta",
        "exec",
        "--",
        "id -un; hostname",
    )
    assert done.returncode == 0, done.stderr
    for name in ("alpha", "beta"):
        assert re.search(rf"\[{name}\]\s+{name}\b", done.stderr), done.stderr
        assert re.search(rf"\[{name}\]\s+root\b", done.stderr)


def test_a_login_user_with_sudo_works_as_root_does(spare_lab: SpareLab, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    inventory.write_text('nodes = [("@tailscale/alpha", {"ssh_user": "deploy", "_sudo": True})]\n')
    source = tmp_path / "file"
    source.write_text("from the control machine\n")
    put = ("files.put", f"src={source}", "dest=/root/put-by-deploy")
    assert pyinfra(spare_lab, "-y", str(inventory), *put).returncode == 0
    assert spare_lab.host("alpha").run("cat", "/root/put-by-deploy").stdout == "from the control machine\n"
    assert spare_lab.host("alpha").run("stat", "-c", "%U", "/root/put-by-deploy").stdout == "root\n"
    spare_lab.host("alpha").run("rm", "/root/put-by-deploy")


def test_a_folder_is_sent_by_rsync(spare_lab: SpareLab, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("one")
    words = ("files.rsync", f"src={tmp_path}/folder/", "dest=/tmp/by-rsync/", 'flags=["-a"]')
    done = pyinfra(spare_lab, "-y", "--user", "root", "@tailscale/alpha", *words)
    assert done.returncode == 0, done.stderr
    assert spare_lab.host("alpha").run("cat", "/tmp/by-rsync/file").stdout == "one"
    spare_lab.host("alpha").run("rm", "-r", "/tmp/by-rsync")


def test_commands_are_quick_and_the_path_is_direct(session: Callable[..., Session]) -> None:
    connected = session("alpha", "beta")
    assert connected.connected == ["alpha", "beta"]
    assert connected.seconds < 5
    done = connected.run("alpha", "true")
    assert done["succeeded"]
    assert done["path"].startswith("direct 10.")


def test_raw_bytes_arrive(session: Callable[..., Session]) -> None:
    connected = session("alpha")
    done = connected.run("alpha", "wc -c", megabytes=50)
    assert done["stdout"] == str(50 << 20)
    assert done["seconds"] < 25
    early = connected.run("alpha", "head -c 10 >/dev/null; echo no space left >&2; exit 28", megabytes=50)
    assert (early["succeeded"], early["stderr"]) == (False, "no space left")


def test_a_policy_denial_drops_only_that_host(spare_lab: SpareLab, session: Callable[..., Session]) -> None:
    spare_lab.coordination.set_ssh_policy("alpha", "deny")
    try:
        connected = eventually_refused(session, "alpha", "beta")
    finally:
        spare_lab.coordination.set_ssh_policy("alpha", "accept")
    assert connected.connected == ["beta"]
    assert connected.errors["alpha"].startswith("the tailnet's policy does not permit to log in as root")
    assert "tailnet policy does not permit you to SSH" in connected.errors["alpha"]


def eventually_refused(session: Callable[..., Session], *names: str, **data: Any) -> Session:
    """A session in which the first host refuses; a changed policy takes a moment to reach it."""
    for _ in range(20):
        connected = session(*names, **data)
        if names[0] not in connected.connected:
            return connected
        time.sleep(0.5)
    pytest.fail(f"{names[0]} still accepts logins")


def test_a_check_shows_its_address_and_ends(spare_lab: SpareLab, session: Callable[..., Session]) -> None:
    spare_lab.coordination.set_ssh_policy("alpha", "check")
    try:
        connected = eventually_refused(session, "alpha", tailscale_check_timeout=2)
        shown = pyinfra(
            spare_lab,
            "-y",
            "--user",
            "root",
            "--data",
            "tailscale_check_timeout=2",
            "@tailscale/alpha",
            "exec",
            "--",
            "true",
        )
    finally:
        spare_lab.coordination.set_ssh_policy("alpha", "accept")
    assert "not done within 2 s" in connected.errors["alpha"]
    assert "https://login.tailscale.com/a/lab0123456789" in connected.errors["alpha"]
    assert shown.returncode == 1
    first, last = (
        shown.stderr.index("To authenticate, visit: https://"),
        shown.stderr.index("not done within"),
    )
    assert first < last


def test_a_host_key_that_the_netmap_does_not_name_is_refused(
    spare_lab: SpareLab, session: Callable[..., Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another machine answered: alpha presents its key, the status document gives it beta's."""
    status = json.loads(spare_lab.on_control(["tailscale", "status", "--json"]).stdout)
    peers = {peer["HostName"]: peer for peer in status["Peer"].values()}
    peers["alpha"]["sshHostKeys"] = peers["beta"]["sshHostKeys"]
    swapped = tmp_path / "status.json"
    swapped.write_text(json.dumps(status))
    monkeypatch.setenv("TAILTRAIN_STATUS_JSON", str(swapped))
    connected = session("alpha", "beta")
    assert connected.connected == ["beta"]
    assert "does not have the host key that the tailnet names" in connected.errors["alpha"]


def test_an_expired_key_is_named_with_its_date(spare_lab: SpareLab, session: Callable[..., Session]) -> None:
    spare_lab.coordination.set_key_expired("beta", expired=True)
    try:
        connected = eventually_refused(session, "beta", "alpha")
    finally:
        spare_lab.coordination.set_key_expired("beta", expired=False)
    assert connected.connected == ["alpha"]
    assert re.search(r"its Tailscale key expired on \d{4}-\d\d-\d\d", connected.errors["beta"])
    assert connected.seconds < 5


def test_tailscale_ssh_off_says_how_to_turn_it_on(
    spare_lab: SpareLab, session: Callable[..., Session]
) -> None:
    alpha = spare_lab.host("alpha")
    alpha.run("tailscale", "set", "--ssh=false")
    try:
        connected = eventually_refused(session, "alpha", "beta")
    finally:
        alpha.run("tailscale", "set", "--ssh")
    assert connected.connected == ["beta"]
    assert "Tailscale SSH is off there" in connected.errors["alpha"]
    assert "sudo tailscale set --ssh" in connected.errors["alpha"]


def test_a_plain_sshd_is_used_with_a_key(
    spare_lab: SpareLab, session: Callable[..., Session], tmp_path: Path
) -> None:
    alpha = spare_lab.host("alpha")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    alpha.run(
        "install", "-D", "-m", "600", "/dev/stdin", "/root/.ssh/authorized_keys", input=public, stdin=None
    )
    alpha.run("tailscale", "set", "--ssh=false")
    alpha.run("systemctl", "start", "ssh")
    known_hosts = tmp_path / "known_hosts"
    data = {"ssh_key": str(key), "ssh_known_hosts_file": str(known_hosts)}
    try:
        without_key = eventually_refused(session, "alpha", ssh_known_hosts_file=str(known_hosts))
        connected = session("alpha", **data)
        assert connected.connected == ["alpha"]
        assert connected.run("alpha", "hostname")["stdout"] == "alpha"
        known_hosts.write_text(re.sub(r"AAAA\S+", lambda _: public.split()[1], known_hosts.read_text()))
        changed = session("alpha", **data)
    finally:
        alpha.run("systemctl", "stop", "ssh")
        alpha.run("tailscale", "set", "--ssh")
        alpha.run("rm", "/root/.ssh/authorized_keys")
    assert "it accepts publickey" in without_key.errors["alpha"]
    assert "the host key is not the one in known_hosts" in changed.errors["alpha"]


def test_an_unknown_host_is_told_with_near_names(session: Callable[..., Session]) -> None:
    connected = session("alhpa", "beta")
    assert connected.connected == ["beta"]
    assert connected.errors["alhpa"].endswith("Did you mean alpha?")


def test_this_machine_runs_commands_itself(spare_lab: SpareLab, session: Callable[..., Session]) -> None:
    here = spare_lab.on_control(["readlink", "/proc/self/ns/net"]).stdout.strip()
    connected = session("lab-control")
    done = connected.run("lab-control", "readlink /proc/self/ns/net")
    assert (done["stdout"], done["path"]) == (here, "local")


def test_a_host_that_is_off_costs_ten_seconds_and_is_said_to_be_off(
    spare_lab: SpareLab, session: Callable[..., Session]
) -> None:
    beta = spare_lab.host("beta")
    beta.power_cut()
    try:
        deadline = time.monotonic() + 20
        while beta.online and time.monotonic() < deadline:
            time.sleep(0.2)
        connected = session("beta", "alpha")
    finally:
        beta.boot()
    assert connected.connected == ["alpha"]
    assert "the host is offline" in connected.errors["beta"]
    assert connected.seconds < 11


def test_a_host_that_rebooted_between_commands_is_connected_again(
    spare_lab: SpareLab, session: Callable[..., Session]
) -> None:
    beta = spare_lab.host("beta")
    connected = session("beta")
    before = connected.run("beta", "cat /proc/1/stat | cut -d' ' -f22")
    beta.power_cut()
    beta.boot()
    after = connected.run("beta", "cat /proc/1/stat | cut -d' ' -f22")
    assert after["succeeded"], after
    assert before["stdout"] != after["stdout"]


def test_a_power_cut_mid_command_does_not_hang_the_run(
    spare_lab: SpareLab, session: Callable[..., Session]
) -> None:
    beta = spare_lab.host("beta")
    connected = session("beta", tailscale_silence=4)
    finish = connected.start("beta", "sleep 120")
    time.sleep(1)
    beta.power_cut()
    try:
        done = finish()
    finally:
        beta.boot()
    # The command may be killed a moment before tailscaled, which then still tells of it.
    assert "was lost while a command ran" in done.get("error", "") or done["succeeded"] is False
    assert done["seconds"] < 15


def test_a_cut_cable_mid_transfer_does_not_hang_the_run(
    spare_lab: SpareLab, session: Callable[..., Session]
) -> None:
    beta = spare_lab.host("beta")
    connected = session("beta", tailscale_silence=4)
    finish = connected.start("beta", "cat >/dev/null", megabytes=4000)
    time.sleep(2)
    beta.cut_off()
    try:
        done = finish()
    finally:
        beta.restore()
    assert "was lost while a command ran" in done["error"]
    assert done["seconds"] < 20
