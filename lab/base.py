"""The base system of the lab's hosts: a small Debian with systemd, as the lowest, read-only layer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lab.cache import digest, made
from lab.system import run
from tailtrain.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

    from lab.progress import Progress

SUITE = "bookworm"
LOGIN_USER = "deploy"
"""A user on every host who may log in and has sudo without a password; root may log in as well."""

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "python3-venv",
    "rsync",
    "iproute2",
    "sudo",
    "procps",
    "ca-certificates",
    "serf",
)

_FILES = {
    "etc/systemd/system/tailscaled.service": """\
[Unit]
Description=Tailscale node agent
Wants=ssh-host-keys.service
After=ssh-host-keys.service network.target

[Service]
# Without this tailscaled uploads its logs; the lab has no way out.
Environment=TS_NO_LOGS_NO_SUPPORT=true
Type=notify
StateDirectory=tailscale
RuntimeDirectory=tailscale
ExecStart=/usr/local/bin/tailscaled --state=/var/lib/tailscale/tailscaled.state \
--socket=/run/tailscale/tailscaled.sock --port=41641
Restart=on-failure

[Install]
WantedBy=multi-user.target
""",
    "etc/systemd/system/ssh-host-keys.service": """\
[Unit]
Description=Make this host's SSH keys
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
""",
    "etc/sudoers.d/deploy": f"{LOGIN_USER} ALL=(ALL:ALL) NOPASSWD: ALL\n",
    "etc/resolv.conf": "",
    "etc/hostname": "",
    "etc/machine-id": "",
}

# logind: Tailscale SSH asks it for a session on every command and, in a container, waits a second for it.
_MASKED = (
    "systemd-logind.service",
    "dbus-org.freedesktop.login1.service",
    "getty@tty1.service",
    "console-getty.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
)
_NOT_STARTED = ("ssh.service", "serf.service")
_STARTED = ("tailscaled.service",)


def base_system(cache: Path, progress: Progress) -> Path:
    """The root directory of the base system, made with debootstrap if it is not in the cache.

    Raises:
        LabError: debootstrap failed, or apt knows no Debian mirror.
    """
    recipe = repr((SUITE, PACKAGES, _FILES, _MASKED, _NOT_STARTED, _STARTED, LOGIN_USER))

    def make(root: Path) -> None:
        with progress.step(f"base system: installing Debian {SUITE}", note="about a minute"):
            _make(root)

    return made(cache / "base", digest(recipe), make)


def _make(root: Path) -> None:
    root.chmod(0o755)
    include = "--include=" + ",".join(PACKAGES)
    # debootstrap mounts /proc in the new root; in a namespace of its own nothing stays mounted when it is
    # killed.
    own_mounts = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    run(
        [*own_mounts, "debootstrap", "--variant=minbase", include, SUITE, str(root), _mirror()],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        fix="Check that `apt-get update` works on this machine; the lab uses the same mirror.",
    )
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    for host_key in (root / "etc/ssh").glob("ssh_host_*"):
        host_key.unlink()  # each host makes its own
    for name, text in _FILES.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.write_text(text)
    (root / "etc/sudoers.d/deploy").chmod(0o440)
    (root / "var/log/journal").mkdir(exist_ok=True)  # logs outlive a power cut
    system = ["systemctl", f"--root={root}"]
    run([*system, "disable", *_NOT_STARTED])
    run([*system, "mask", *_MASKED])
    run([*system, "enable", *_STARTED])
    run([*system, "set-default", "multi-user.target"])
    run(["chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", LOGIN_USER])


def _mirror() -> str:
    """The mirror that this machine's own apt uses for Debian's main component."""
    targets = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"])
    candidates = [line.split() for line in targets.splitlines()]
    for exact in (True, False):
        for uri, codename, component, origin in (c for c in candidates if len(c) == 4):  # noqa: PLR2004 - the four fields asked for
            suite_fits = codename == SUITE if exact else not codename.endswith(("-security", "-updates"))
            if component == "main" and origin == "Debian" and suite_fits:
                return uri
    raise LabError(
        "apt knows no Debian mirror on this machine",
        fix="Add one to /etc/apt/sources.list and type: apt-get update",
    )
