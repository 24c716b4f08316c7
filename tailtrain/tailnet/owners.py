"""As whom the tailnet's policy knows a machine: by its tag, or by the user whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tailtrain.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.tailnet.netmap import Peer


class _MachineDocument(msgspec.Struct, rename="pascal"):
    """The part of ipnstate.PeerStatus that names the owner."""

    user_id: int = msgspec.field(default=0, name="UserID")
    tailscale_ips: list[str] | None = msgspec.field(default=None, name="TailscaleIPs")


class _UserDocument(msgspec.Struct, rename="pascal"):
    """The part of tailcfg.UserProfile that we read."""

    login_name: str = ""


class _OwnersDocument(msgspec.Struct, rename="pascal"):
    """The part of ipnstate.Status that names owners."""

    own: _MachineDocument | None = msgspec.field(default=None, name="Self")
    peer: dict[str, _MachineDocument] | None = None
    user: dict[str, _UserDocument] | None = None


@dataclass(frozen=True, order=True, slots=True)
class Identity:
    """How a rule of the policy names a machine: `tag:train`, or `alice@example.com`."""

    name: str

    @property
    def is_tag(self) -> bool:
        """Whether the machine is nobody's: a tagged one no longer counts as its user's."""
        return self.name.startswith("tag:")


def logins_of(status: bytes | str) -> Mapping[str, str]:
    """The login name of each machine's user, by every address that the machine has.

    Args:
        status: the JSON that `tailscale status --json` prints.

    Raises:
        DaemonError: it is no status.
    """
    try:
        document = msgspec.json.decode(status, type=_OwnersDocument)
    except msgspec.DecodeError as error:
        raise DaemonError(
            "the Tailscale daemon's status cannot be read", field="tailscale status --json", found=str(error)
        ) from None
    users = {number: user.login_name for number, user in (document.user or {}).items()}
    machines = [*([document.own] if document.own else []), *(document.peer or {}).values()]
    return {
        address: users.get(str(machine.user_id), "")
        for machine in machines
        for address in machine.tailscale_ips or ()
    }


def identity_of(peer: Peer, logins: Mapping[str, str], preferred_tag: str) -> Identity:
    """How rules name a machine: by the preferred tag if it bears that, else by its first one, else its user.

    Raises:
        DaemonError: it has no tag, and the daemon does not say whose it is.
    """
    tags = [f"tag:{tag}" for tag in sorted(peer.tags)]
    if tags:
        return Identity(preferred_tag if preferred_tag in tags else tags[0])
    if login := logins.get(peer.address):
        return Identity(login)
    raise DaemonError("the Tailscale daemon does not say whose machine this is", host=peer.name)
