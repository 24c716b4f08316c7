"""pyinfra's `@fake` connector for a great many hosts that answer alike, each with an identity of its own.

`@fake` itself keeps the `@fake/` in its hosts' names, and pyinfra then counts their groups twice.
"""

from __future__ import annotations

import binascii
import json
import time
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from tailtrain.fleet import probe_program
from tailtrain.tailnet import ping_program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.command import StringCommand


class ManyHosts(FakeConnector):
    """Hosts that are not there."""

    @staticmethod
    def make_names_data(name: str | None = None) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Give the host under its plain name."""
        yield name or "", {}, []

    def run_shell_command(  # type: ignore[override]  # pyinfra passes more than matters here
        self, command: StringCommand, *_: Any, _stdin: Any, **__: Any
    ) -> tuple[bool, CommandOutput]:
        """Answer the probe, and where the question is one of paths, that all of them are direct."""
        del command
        sources, request = json.loads(zlib.decompress(b"".join(_stdin)))
        if sources[-1][0] == ping_program.__name__:
            return _said({"paths": dict.fromkeys(json.loads(request)["addresses"], "direct"), "problem": ""})
        reply = {**_reply(), "peer_id": f"Qm{self.host.name:0>44}"}
        reply["hardware"] = {**reply["hardware"], "clock": time.time()}
        return _said(probe_program.news(reply, []))


def _said(answer: dict[str, Any]) -> tuple[bool, CommandOutput]:
    text = binascii.b2a_base64(zlib.compress(json.dumps(answer).encode())).decode().strip()
    return True, CommandOutput([OutputLine("stdout", text)])


@cache
def _reply() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path("reply.json").read_text())
    return document
