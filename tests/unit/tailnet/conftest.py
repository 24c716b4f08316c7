"""Tests of the connector run as pyinfra does: in a process whose blocking calls gevent has replaced.

Those replacements cannot be undone and would change every other test, so each test marked `patched` runs in a
forked process of its own, which sends its reports back.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import warnings
from typing import TYPE_CHECKING, Any

import gevent
import gevent.monkey
import pytest
from _pytest.runner import runtestprotocol

from tailtrain.tailnet import daemon, session
from tests.unit.tailnet.admin_stand_in import AdminStandIn
from tests.unit.tailnet.tailnet_stand_in import Tailnet

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("patched") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _run_forked(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    # The child took down for itself what the next test does not need; here it would stay.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_forked(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gevent warns that modules were imported before
            gevent.monkey.patch_all()
            gevent.reinit()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump([report._to_json() for report in reports], pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sent = pipe.read()
    os.waitpid(child, 0)
    if not sent:
        pytest.fail(f"the process of {item.nodeid} died", pytrace=False)
    loaded: list[dict[str, Any]] = pickle.loads(sent)  # noqa: S301  # from our own child
    return [pytest.TestReport._from_json(data) for data in loaded]


@pytest.fixture
def tailnet(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tailnet]:
    """A tailnet of SSH servers on loopback addresses, and the status document that names them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # tailscaled answers on port 22, which only root may open here.
    monkeypatch.setattr(session, "TAILSCALE_SSH_PORT", port)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stand_in = Tailnet(tmp_path, port)
    monkeypatch.setenv(daemon.STATUS_FILE_VARIABLE, str(stand_in.status_file))
    daemon.forget_netmap()
    yield stand_in
    stand_in.close()
    daemon.forget_netmap()


@pytest.fixture(scope="session")
def _admin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminStandIn]:
    stand_in = AdminStandIn(tmp_path_factory.mktemp("admin"))
    yield stand_in
    stand_in.close()


@pytest.fixture
def admin_stand_in(_admin_server: AdminStandIn) -> AdminStandIn:
    """Tailscale's admin API, as it answers at first."""
    _admin_server.reset()
    return _admin_server
