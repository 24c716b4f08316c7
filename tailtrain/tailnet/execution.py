"""A command at the other end of an SSH channel, started without a round trip of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paramiko import Message, SSHException
from paramiko.common import cMSG_CHANNEL_REQUEST

from tailtrain.tailnet import explain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paramiko import Channel

    from tailtrain.tailnet.netmap import Peer


def start(
    channel: Channel, command_line: str, *, terminal: bool, host: str, peer: Peer | None
) -> RemoteCommand:
    """Start a command.

    Raises:
        OSError: the connection was lost.
    """
    try:
        if terminal:
            channel.get_pty()
        _execute(channel, command_line)
    except (EOFError, SSHException) as error:
        channel.close()
        raise explain.lost(host, peer, error) from error
    return RemoteCommand(channel, host, peer)


def _execute(channel: Channel, command_line: str) -> None:
    """Ask for the command (RFC 4254, section 6.5) as `Channel.exec_command` does, but wait for no reply.

    What is written meanwhile waits in the server, so a command costs one round trip less. A server that
    refuses says so later: paramiko then closes the channel, and the command ends without an exit code.
    """
    request = Message()
    request.add_byte(cMSG_CHANNEL_REQUEST)
    request.add_int(channel.remote_chanid)
    request.add_string("exec")
    request.add_boolean(True)
    request.add_string(command_line)
    # There is no public way to send a request of one's own.
    transport: Any = channel.get_transport()
    transport._send_user_message(request)  # noqa: SLF001


class RemoteCommand:
    """A command that runs at the other end of a channel."""

    def __init__(self, channel: Channel, host: str, peer: Peer | None) -> None:
        self._channel = channel
        self._host = host
        self._peer = peer
        self.stdin = channel.makefile_stdin("wb")
        self.stdout: Iterable[bytes] = channel.makefile("rb")
        self.stderr: Iterable[bytes] = channel.makefile_stderr("rb")

    def wait(self) -> int:
        """Give the exit code; -1 where there is none, as after a signal.

        Raises:
            OSError: the connection was lost before there was one.
        """
        status = self._channel.recv_exit_status()
        transport = self._channel.get_transport()
        if status == -1 and not transport.is_active():
            raise explain.lost(self._host, self._peer, transport.get_exception())
        return status

    def abort(self) -> None:
        """End the command as far as that is possible."""
        self._channel.close()

    def close(self) -> None:
        """End the command if it still runs."""
        self._channel.close()
