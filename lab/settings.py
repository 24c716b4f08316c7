"""Where a lab lives: its name, and every path, namespace and address derived from it.

Everything that a lab makes on the machine carries its name, so several labs can run beside each other.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tailtrain.errors import LabError

CONTROL = "@control"
"""The control side's place among the hosts' namespaces and cgroups; no host can have this name."""

SWITCH = "@switch"
"""The namespace of the bridge and the coordination server."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Settings:
    """One lab's name and places.

    Raises:
        LabError: the name is not usable in paths and namespace names.
    """

    name: str = "lab"
    state_root: Path = Path("/var/lib/tailtrain-lab")
    cache: Path = field(default_factory=lambda: _cache_home() / "tailtrain" / "lab")
    checkout: Path = Path(__file__).resolve().parent.parent
    network: IPv4Network = field(default=IPv4Network("10.99.0.0/16"))
    """The bridge's network; it exists in the lab's own namespaces only, so labs may share it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LabError(
                "a lab's name is made of small letters, digits and hyphens",
                field="name",
                found=repr(self.name),
            )

    @classmethod
    def from_environment(cls, name: str | None = None) -> Settings:
        """The lab of this name, else the one that TAILTRAIN_LAB names, else `lab`."""
        return cls(name=name or os.environ.get("TAILTRAIN_LAB") or "lab")

    @property
    def state(self) -> Path:
        """The directory of this lab's hosts and state file."""
        return self.state_root / self.name

    @property
    def lock_file(self) -> Path:
        """Held by whoever changes this lab."""
        return Path("/run/lock") / f"tailtrain-{self.name}.lock"

    @property
    def cgroup(self) -> str:
        """The directory, in each cgroup hierarchy, that holds all processes of this lab."""
        return f"tailtrain-{self.name}"

    def netns(self, place: str) -> str:
        """The network namespace of a host, CONTROL or SWITCH."""
        return f"tailtrain-{self.name}.{place}"

    def host_dir(self, host: str) -> Path:
        """A host's writable layer, console log and mount point."""
        return self.state / "hosts" / host

    @property
    def control_dir(self) -> Path:
        """The control side's tailscaled state and its view of /etc."""
        return self.state / "control"

    @property
    def admin_socket(self) -> Path:
        """The coordination server's admin socket."""
        return self.state / "coordination.sock"

    @property
    def server(self) -> IPv4Address:
        """The coordination server's address on the bridge."""
        return self.network[1]

    @property
    def login_server(self) -> str:
        """The URL that `tailscale up --login-server` is given."""
        return f"http://{self.server}:9911"

    def bridge_address(self, index: int) -> IPv4Address:
        """The address on the bridge of the host with this index; 0 is the control side."""
        return self.network[10 + index]


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
