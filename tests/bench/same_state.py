"""What a deploy has left on the hosts, written down for the contenders, so that they keep that same state."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tailtrain.planning import layout

if TYPE_CHECKING:
    from pathlib import Path

    from lab.lab import Host, Lab

FOLDERS = (
    layout.ENVIRONMENT_DIR,
    layout.CODE_DIR,
    layout.CONFIG_DIR,
    layout.STATE_DIR,
    layout.CHUNK_DIR,
    layout.MANIFEST_DIR,
    layout.RUN_DIR,
)
FILES = (
    layout.CONFIG,
    f"{layout.UNIT_DIR}/{layout.WORKER_UNIT}",
    f"{layout.UNIT_DIR}/{layout.VALIDATE_UNIT}",
)


@dataclass(frozen=True)
class Wanted:
    """What belongs on one host.

    Attributes:
        packages: Debian packages.
        account: the worker's account, its home below.
        home: see above.
        folders: path, owner (and group), mode.
        built: for environment and code: the file that says it is complete, and a command that would make it.
        identity: the node's key: only its owner and mode are looked at.
        files: source here, path there, group, mode; all are root's.
        sums: file with SHA-256 and path of each chunk, manifest and the model, as sha256sum reads it.
        sources: folder with the files that `sums` names.
        unit: enabled when the host boots.
    """

    packages: list[str]
    account: str
    home: str
    folders: list[tuple[str, str, str]]
    built: list[tuple[str, str]]
    identity: str
    files: list[tuple[str, str, str, str]]
    sums: str
    sources: str
    unit: str


def write(lab: Lab, chunks: Path, folder: Path) -> int:
    """Write the inventories of both contenders and everything that they name into a folder.

    Args:
        lab: the lab, its hosts deployed to.
        chunks: where the control side keeps chunk files.
        folder: made afresh.

    Returns:
        How many files, folders and the like are compared on the host with most of them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = {name: _wanted(lab.host(name), chunks, folder / name) for name in lab.state.hosts}
    pins = folder / "known_hosts"
    pins.write_text(known_hosts(lab))
    # @tailscale, as tailtrain has it: what is compared is operations, not two ways to connect.
    hosts = [(f"@tailscale/{name}", {"wanted": asdict(wanted)}) for name, wanted in found.items()]
    (folder / "inventory.py").write_text(f"nodes = {hosts!r}\n")
    pinned = f"-o UserKnownHostsFile={pins} -o StrictHostKeyChecking=yes"
    inventory = {
        "all": {
            "hosts": {
                name: {"ansible_host": lab.host(name).address, "wanted": asdict(wanted)}
                for name, wanted in found.items()
            },
            "vars": {
                "ansible_user": "root",
                "ansible_ssh_common_args": pinned,
            },
        }
    }
    (folder / "inventory.json").write_text(json.dumps(inventory, indent=1))
    return max(
        len(wanted.folders) + len(wanted.built) + len(wanted.files) + 1 + _lines(wanted.sums)
        for wanted in found.values()
    )


def known_hosts(lab: Lab) -> str:
    """The hosts' keys by address, as OpenSSH reads them."""
    peers = json.loads(lab.on_control(["tailscale", "status", "--json"]).stdout)["Peer"].values()
    return "".join(f"{peer['TailscaleIPs'][0]} {key}\n" for peer in peers for key in peer["sshHostKeys"])


def _lines(sums: str) -> int:
    with open(sums, encoding="utf-8") as file:  # noqa: PTH123 - a path as text, as the inventory has it
        return sum(1 for _ in file)


def _wanted(host: Host, chunks: Path, place: Path) -> Wanted:
    place.mkdir()
    config: dict[str, Any] = json.loads(_text(host, layout.CONFIG))
    files = []
    for path in FILES:
        copy = place / path.rpartition("/")[2]
        copy.write_text(_text(host, path))
        group, mode = _shell(host, f"stat -c '%G %a' {path}").split()
        files.append((str(copy), path, group, mode))
    names = {name for data in config["data"] for name, _, _ in data["ranges"]}
    names |= {name for data in config["data"] for name in data["heldout"]}
    sums = [f"{name}  {layout.CHUNK_DIR}/{name}" for name in sorted(names)]
    model = f"{layout.run(config['run_id'])}/final/model.safetensors"
    sums += _shell(host, f"sha256sum {layout.MANIFEST_DIR}/*.json {model}").splitlines()
    (place / "SHA256SUMS").write_text("".join(f"{line}\n" for line in sums))
    folders = [line.split() for line in _shell(host, f"stat -c '%n %U %a' {' '.join(FOLDERS)}").splitlines()]
    markers = _shell(host, f"ls {layout.ENVIRONMENT_DIR}/*/.complete {layout.CODE_DIR}/*/.complete").split()
    return Wanted(
        packages=[name for name in layout.PACKAGES if name != "python3"],
        account=layout.ACCOUNT,
        home=layout.STATE_DIR,
        folders=[(path, owner, mode) for path, owner, mode in folders],
        built=[(marker, f"install -D /dev/null {marker}") for marker in markers],
        identity=layout.IDENTITY,
        files=files,
        sums=str(place / "SHA256SUMS"),
        sources=str(chunks),
        unit=layout.WORKER_UNIT.removesuffix(".service"),
    )


def _text(host: Host, path: str) -> str:
    return host.run("cat", path).stdout


def _shell(host: Host, line: str) -> str:
    return host.run("sh", "-c", line).stdout
