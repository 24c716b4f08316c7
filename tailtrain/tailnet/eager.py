"""Logging in with `none` in one round trip instead of two.

Before a login, a client asks for the service that does logins, and a server that has none ends the connection
(RFC 4253, section 10). So nothing is lost by sending the login at once, behind that question. paramiko waits
in between; what stands here is its own way (paramiko 4), without the wait.
"""

from __future__ import annotations

import threading
from typing import Any

from paramiko import Message, SSHException, Transport
from paramiko.auth_handler import AuthHandler
from paramiko.common import MSG_SERVICE_ACCEPT, cMSG_USERAUTH_REQUEST


class EagerTransport(Transport):
    """A transport whose `auth_none` does not wait for the service."""

    def auth_none(self, username: str) -> list[str]:
        """Log in without proving anything.

        Raises:
            BadAuthenticationType: that is not enough.
            SSHException: the connection ended.
        """
        if not (self.active and self.initial_kex_done):
            message = "No existing session"
            raise SSHException(message)
        answered = threading.Event()
        handler = _EagerHandler(self)
        self.auth_handler = handler
        handler.auth_none(username, answered)
        found: list[str] = handler.wait_for_response(answered)
        return found


class _EagerHandler(AuthHandler):
    def _request_auth(self) -> None:
        super()._request_auth()  # type: ignore[misc]  # not in the stubs
        login = Message()
        login.add_byte(cMSG_USERAUTH_REQUEST)
        for text in (self.username or "", "ssh-connection", self.auth_method):
            login.add_string(text)
        transport: Any = self.transport
        transport._send_message(login)  # noqa: SLF001 - as paramiko's own handler does

    @property
    def _client_handler_table(self) -> dict[int, Any]:
        """What paramiko does on each kind of message; that the service is there needs no answer any more."""
        table: dict[int, Any] = dict(super()._client_handler_table)  # type: ignore[misc]  # not in the stubs
        table[MSG_SERVICE_ACCEPT] = lambda *_: None
        return table
