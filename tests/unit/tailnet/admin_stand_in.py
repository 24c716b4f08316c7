"""Tailscale's admin API for tests: the server of `admin_server`, as a process, and the way to it.

A process finds it through the proxy that HTTPS_PROXY names; within this one `connect` opens sessions to it.
The server is no thread: where gevent has replaced blocking calls, that would wait for whoever waits for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.plans.situations import PROJECT
from tests.unit.tailnet.admin_documents import API_HOST, ASKED, AUTHORITY, BEHAVIOUR, Asked, Behaviour

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import ClientSession


class AdminStandIn:
    """A server, for as long as it is not closed.

    Args:
        folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = 0
        self.authority = folder / AUTHORITY
        self.reset()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.tailnet.admin_server", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=PROJECT,
        )
        assert self._process.stdout
        self.port, self.proxy_port = json.loads(self._process.stdout.readline())

    def reset(self) -> None:
        """Answer as at first, and forget what was asked."""
        (self._folder / ASKED).write_text("")
        self._how: dict[str, Any] = {}
        self.behave()

    def behave(self, **how: Any) -> None:
        """Answer so from now on, in this and as before in all else; see `Behaviour`."""
        self._turn += 1
        self._how |= how
        (self._folder / BEHAVIOUR).write_text(json.dumps(vars(Behaviour(turn=self._turn, **self._how))))

    @property
    def asked(self) -> list[Asked]:
        """The requests that arrived."""
        return [Asked(**json.loads(line)) for line in (self._folder / ASKED).read_text().splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        """What leads a process here instead of to Tailscale."""
        return {"HTTPS_PROXY": f"http://127.0.0.1:{self.proxy_port}", "SSL_CERT_FILE": str(self.authority)}

    def connect(self) -> ClientSession:
        """Connections of this process for which api.tailscale.com is here."""
        import ssl  # noqa: PLC0415  # must not come before the modules that have gevent replace it

        from aiohttp import ClientSession, TCPConnector  # noqa: PLC0415  # as ssl
        from aiohttp.abc import AbstractResolver, ResolveResult  # noqa: PLC0415  # as ssl

        port = self.port

        class Here(AbstractResolver):
            """Finds api.tailscale.com on loopback, and nothing else."""

            async def resolve(self, host: str, port_: int = 0, family: Any = 0) -> list[ResolveResult]:
                del family
                assert (host, port_) == (API_HOST, 443)
                return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=2, proto=6, flags=0)]

            async def close(self) -> None:
                pass

        trusted = ssl.create_default_context(cafile=str(self.authority))
        return ClientSession(connector=TCPConnector(resolver=Here(), ssl=trusted))

    def close(self) -> None:
        """End it."""
        with self._process:
            self._process.kill()
