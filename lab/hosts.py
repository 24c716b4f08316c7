"""Booting a host, entering it, and taking it down."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cgroups, network
from lab.cache import remove_tree
from lab.environment import WHEELS_ON_HOST
from lab.processes import in_namespaces, init_of, last_lines, launch, wait_for
from lab.state import HostState, Process
from lab.system import run
from lab.tailnet import SOCKET
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.settings import Settings

MARKER = "etc/tailtrain-lab.json"
"""The file on each host that says what it emulates."""

_BOOT_SECONDS = 60.0


def boot(settings: Settings, host: HostState, wheels: str) -> HostState:
    """Boot a host and give it with its process 1; its processor quota is not set yet, so that it boots fast.

    Raises:
        LabError: it does not come up within a minute.
    """
    name = host.spec.name
    cgroups.kill(settings.cgroup, name)
    network.ensure_link(settings, name, host.index)
    place = settings.host_dir(name)
    for part in ("upper", "work", "root"):
        (place / part).mkdir(parents=True, exist_ok=True)
    write_marker(place / "upper", host)
    (place / "upper/etc/hostname").write_text(f"{name}\n")
    (place / "upper/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost\n")
    doors = cgroups.create(settings.cgroup, name)
    cgroups.set_cpu_quota(settings.cgroup, name, None)
    cgroups.set_memory_limit(settings.cgroup, name, host.memory_bytes)
    options = f"lowerdir={':'.join(host.layers)},upperdir={place}/upper,workdir={place}/work"
    nspawn = [
        "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
        f"--directory={place}/root",
        # Else named after its folder, `root` for all: two that boot at once are in each other's way.
        f"--machine={settings.netns(name)}",
        f"--network-namespace-path=/run/netns/{settings.netns(name)}",
        f"--hostname={name}",
        "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
        "--bind=/dev/net/tun",
        f"--bind-ro={wheels}:{WHEELS_ON_HOST}",
        "--console=pipe",
    ]  # fmt: skip
    # The overlay is mounted in a mount namespace of the host's own, so it goes when the host goes, however
    # that happens.
    inner = f"mount -n -t overlay overlay -o {shlex.quote(options)} {place}/root\nexec {shlex.join(nspawn)}"
    log = place / "console.log"
    log.unlink(missing_ok=True)
    launch(doors, f"exec unshare --mount --propagation private sh -euc {shlex.quote(inner)}", log)

    def booted() -> Process | None:
        pids = cgroups.processes(settings.cgroup, name)
        init = init_of(pids)
        if init is None or not Path(f"/proc/{init}/root{SOCKET}").exists():
            return None
        return Process.of(init)

    init = wait_for(
        booted,
        seconds=_BOOT_SECONDS,
        otherwise=lambda: LabError(f"does not boot: {last_lines(log)}", host=name, field=str(log)),
    )
    return replace(host, init=init)


def write_marker(root: Path, host: HostState) -> None:
    """Write, below this root directory, what the host emulates and what it really has."""
    path = root / MARKER
    path.parent.mkdir(exist_ok=True)
    content = asdict(host.spec.hardware) | {
        "cpu_quota_cores": round(host.cpu_quota_cores, 4),
        "memory_bytes": host.memory_bytes,
    }
    text = json.dumps(content, indent=2) + "\n"
    if path.is_file() and path.read_text() == text:
        return
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.replace(path)


def is_running(settings: Settings, host: HostState) -> bool:
    """Whether a host's process 1 runs, in this host's cgroup and on this host's link."""
    name, init = host.spec.name, host.init
    return (
        init is not None
        and init.alive
        and init.pid in cgroups.processes(settings.cgroup, name)
        and network.holds(settings, name, init.pid)
    )


def limit(settings: Settings, host: HostState) -> None:
    """Make a running host's limits, and what it says it emulates, what its state says."""
    name = host.spec.name
    cgroups.set_cpu_quota(settings.cgroup, name, host.cpu_quota_cores)
    cgroups.set_memory_limit(settings.cgroup, name, host.memory_bytes)
    if host.init is not None:
        write_marker(Path(f"/proc/{host.init.pid}/root"), host)


def power_cut(settings: Settings, name: str) -> None:
    """Kill a host's every process at once; its disk stays as it was at that moment."""
    cgroups.kill(settings.cgroup, name)


def remove(settings: Settings, name: str) -> None:
    """Take a host down and remove its disk and its link."""
    cgroups.kill(settings.cgroup, name)
    network.remove(settings, name)
    remove_tree(settings.host_dir(name))


def command(settings: Settings, host: HostState, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` inside a host, under the host's limits.

    Raises:
        LabError: the host is not running.
    """
    if host.init is None or not host.init.alive:
        raise LabError("the host is not running", host=host.spec.name, fix="Type: python -m lab up")
    doors = cgroups.entrance(settings.cgroup, host.spec.name)
    return in_namespaces(host.init.pid, argv, doors=doors)


def tailscale(settings: Settings, host: HostState, *arguments: str) -> str:
    """Run the tailscale command on a host."""
    return run(command(settings, host, ["tailscale", *arguments]))


def leave_tailnet(settings: Settings, host: HostState) -> None:
    """Make a host forget which tailnet it was in, and start its tailscaled afresh."""
    script = (
        "systemctl stop tailscaled; rm -f /var/lib/tailscale/tailscaled.state; systemctl start tailscaled"
    )
    run(command(settings, host, ["sh", "-c", script]))


def restart_tailscaled(settings: Settings, host: HostState) -> None:
    """Let a host's tailscaled connect anew."""
    run(command(settings, host, ["systemctl", "restart", "tailscaled"]))


def start_tailscaled(settings: Settings, host: HostState) -> None:
    """Start a host's tailscaled if somebody stopped it."""
    active = command(settings, host, ["systemctl", "is-active", "--quiet", "tailscaled"])
    if subprocess.run(active, check=False, stdin=subprocess.DEVNULL).returncode != 0:
        run(command(settings, host, ["systemctl", "start", "tailscaled"]))
