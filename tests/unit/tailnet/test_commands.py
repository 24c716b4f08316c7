"""Commands over a connection: input, output, time-outs, and connections that end."""

from __future__ import annotations

import hashlib
import io
import itertools
import resource
import time
from typing import TYPE_CHECKING

import gevent
import gevent.monkey
import pytest
from pyinfra.api.connect import disconnect_all
from pyinfra.api.operation import add_op
from pyinfra.api.operations import run_ops
from pyinfra.operations import server

from tailtrain.tailnet.commands import BinaryStdin
from tests.unit.tailnet.tailnet_stand_in import Behaviour

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.tailnet.tailnet_stand_in import Deployment, Tailnet

pytestmark = pytest.mark.patched

MEGABYTE = bytes(range(256)) * 4096


@pytest.fixture(params=["ssh", "own machine", "pyinfra's @local"])
def host(request: pytest.FixtureRequest, tailnet: Tailnet) -> tuple[Deployment, str]:
    """A host over SSH, this machine by its tailnet name, and this machine with pyinfra's own connector."""
    tailnet.add("qfox")
    inventory_name, name = {
        "ssh": ("@tailscale/qfox", "qfox"),
        "own machine": ("@tailscale/control", "control"),
        "pyinfra's @local": ("@local", "@local"),
    }[request.param]
    return tailnet.deploy(inventory_name), name


class Megabytes:
    """So many megabytes, made while they are read, as often as asked for."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[bytes]:
        return itertools.repeat(MEGABYTE, self._count)


def test_raw_bytes_arrive_unchanged_in_bounded_memory(host: tuple[Deployment, str]) -> None:
    deployment, name = host
    count = 50
    digest = hashlib.sha256()
    for chunk in Megabytes(count):
        digest.update(chunk)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    succeeded, output, _ = deployment.run(name, "sha256sum", _stdin=BinaryStdin(Megabytes(count)))
    print(f"{count / (time.monotonic() - started):.0f} MB/s to {name}")  # shown by pytest -rP
    assert succeeded
    assert output.split()[0] == digest.hexdigest()
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kilobytes < 24 * 1024


def test_a_command_that_stops_reading_says_why_itself(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control")
    for name in ("qfox", "control"):
        outcome = deployment.run(
            name, "head -c 10 >/dev/null; echo no space left >&2; exit 28", _stdin=BinaryStdin(Megabytes(20))
        )
        assert outcome == (False, "", "no space left")


def test_a_command_that_the_server_refuses_fails_and_is_not_waited_for(tailnet: Tailnet) -> None:
    tailnet.add("qfox", behaviour=Behaviour(refuse_commands=True))
    deployment = tailnet.deploy("@tailscale/qfox")
    started = time.monotonic()
    succeeded, stdout, _ = deployment.run("qfox", "cat", _stdin=BinaryStdin([MEGABYTE] * 8), _timeout=20)
    assert not succeeded
    assert not stdout
    assert time.monotonic() - started < 10


def test_a_command_may_answer_while_it_is_still_read_to(tailnet: Tailnet) -> None:
    """Stock pyinfra writes everything first: `cat` of more than the buffers hold would never end."""
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control")
    for name in ("qfox", "control"):
        succeeded, output, _ = deployment.run(
            name, "cat | base64 -w 1000", _stdin=BinaryStdin(Megabytes(8)), _timeout=30
        )
        assert succeeded
        assert len(output) > 8_000_000


def test_lines_of_text_are_sent_as_pyinfra_does(host: tuple[Deployment, str]) -> None:
    deployment, name = host
    assert deployment.run(name, "cat", _stdin=["one", "two\n"]) == (True, "one\ntwo", "")
    assert deployment.run(name, "cat", _stdin="one") == (True, "one", "")
    assert deployment.run(name, "cat", _stdin=io.StringIO("one\ntwo\n")) == (True, "one\ntwo", "")


def test_an_input_that_fails_fails_the_command(tailnet: Tailnet) -> None:
    def broken() -> Iterator[bytes]:
        yield MEGABYTE
        message = "disk read error"
        raise ValueError(message)

    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control")
    for name in ("qfox", "control"):
        with pytest.raises(OSError, match="disk read error"):
            deployment.run(name, "cat >/dev/null", _stdin=BinaryStdin(broken()), _timeout=10)


def test_an_iterator_is_not_sent_a_second_time_as_nothing() -> None:
    stdin = BinaryStdin(iter([b"once"]))
    assert b"".join(stdin) == b"once"  # type: ignore[arg-type]  # str only to pyinfra
    with pytest.raises(OSError, match="already sent once"):
        list(stdin)


def test_output_that_is_no_text_is_kept(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control")
    for name in ("qfox", "control"):
        assert deployment.run(name, r"printf 'caf\351\nnext\n'") == (True, "caf\ufffd\nnext", "")


@pytest.mark.parametrize("data", [{}, {"tailscale_command_timeout": 0.5}])
def test_a_command_that_takes_too_long_is_ended(tailnet: Tailnet, data: dict[str, float]) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control", **data)
    for name in ("qfox", "control"):
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            deployment.run(name, "sleep 20", **({} if data else {"_timeout": 0.5}))
        assert time.monotonic() - started < 2
        assert deployment.run(name, "echo still there") == (True, "still there", "")


def test_a_host_that_dies_mid_command_fails_alone(tailnet: Tailnet) -> None:
    for name in ("qfox", "architect"):
        tailnet.add(name)
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/architect")
    add_op(deployment.state, server.shell, commands=["sleep 1; echo done"])
    gevent.spawn_later(0.3, tailnet.servers["qfox"].cut)
    run_ops(deployment.state)
    assert {host.name for host in deployment.state.failed_hosts} == {"qfox"}
    assert {host.name for host in deployment.state.active_hosts} == {"architect"}


def test_a_connection_lost_mid_command_is_said_to_be_lost(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    gevent.spawn_later(0.3, server.cut)
    with pytest.raises(
        OSError, match=f"qfox: the connection to {server.address} was lost while a command ran"
    ):
        deployment.run("qfox", "sleep 20")
    assert server.connections == 1


def test_a_host_that_came_back_between_commands_is_connected_again(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    assert deployment.run("qfox", "echo one")[0]
    server.stop()
    time.sleep(0.1)
    server.start()
    assert deployment.run("qfox", "echo two") == (True, "two", "")
    assert server.connections == 2


def test_a_host_that_does_not_come_back_fails_alone_and_is_tried_again(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    server.stop()
    time.sleep(0.1)
    with pytest.raises(OSError, match="refuses connections"):
        deployment.run("qfox", "echo two")
    server.start()
    assert deployment.run("qfox", "echo three") == (True, "three", "")


def test_a_peer_that_falls_silent_does_not_hang_the_run(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", tailscale_silence=1)
    server.freeze()
    started = time.monotonic()
    with pytest.raises(OSError, match="was lost"):
        deployment.run("qfox", "sleep 20")
    assert time.monotonic() - started < 4


def test_a_peer_that_is_only_busy_is_not_taken_for_silent(tailnet: Tailnet) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", tailscale_silence=0.6)
    assert deployment.run("qfox", "sleep 2; echo done") == (True, "done", "")


def test_a_silence_of_our_own_making_ends_no_connection(tailnet: Tailnet) -> None:
    """While this process computes, nobody reads the answers; they are there all the same."""
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", tailscale_silence=1)
    busy = gevent.monkey.get_original("time", "sleep")
    gevent.sleep(0.4)  # the first request is on its way
    busy(2.5)
    gevent.sleep(0.5)
    assert deployment.run("qfox", "echo still there") == (True, "still there", "")
    assert server.connections == 1


def test_disconnecting_closes_the_connection(tailnet: Tailnet) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    assert deployment.run("qfox", "echo one")[0]
    disconnect_all(deployment.state)
    time.sleep(0.3)
    assert not server.is_anybody_connected
    with pytest.raises(OSError, match="not connected"):
        deployment.run("qfox", "echo two")
    assert server.connections == 1


def test_files_are_put_and_got(tailnet: Tailnet, tmp_path: Path) -> None:
    tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox", "@tailscale/control")
    for name in ("qfox", "control"):
        there = tmp_path / f"{name} there"
        assert deployment.host(name).put_file(io.BytesIO(MEGABYTE), str(there))
        assert there.read_bytes() == MEGABYTE
    back = io.BytesIO()
    assert deployment.host("qfox").get_file(str(tmp_path / "qfox there"), back)
    assert back.getvalue() == MEGABYTE


def test_files_are_put_after_the_host_came_back(tailnet: Tailnet, tmp_path: Path) -> None:
    server = tailnet.add("qfox")
    deployment = tailnet.deploy("@tailscale/qfox")
    assert deployment.host("qfox").put_file(io.BytesIO(b"one"), str(tmp_path / "file"))
    server.cut()
    time.sleep(0.1)
    assert deployment.host("qfox").put_file(io.BytesIO(b"two"), str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"two"


def test_this_machine_is_used_without_ssh(tailnet: Tailnet) -> None:
    deployment = tailnet.deploy("@tailscale/control", ssh_user="nobody-here")
    assert deployment.connected == {"control"}
    assert deployment.run("control", "echo local; exit 3") == (False, "local", "")
