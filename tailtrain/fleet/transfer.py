"""Sending things to a host: each file is checked there and visible under its name only when it is right."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shlex
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from gevent.lock import RLock

from tailtrain.data import send
from tailtrain.data.send import SentFile, Transfer
from tailtrain.errors import FleetError, TransferError
from tailtrain.fleet import remote
from tailtrain.fleet.steps import must
from tailtrain.planning import layout
from tailtrain.planning.environment import FINISHED
from tailtrain.tailnet.commands import BinaryStdin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyinfra.api.host import Host

RESERVE_BYTES = 256 << 20
_fetching = RLock()
# What the worker wrote is read with the worker's rights: a link in its place leads nowhere else.
_AS_WORKER = ("runuser", "-u", layout.ACCOUNT, "--")


def send_contents(
    host: Host, contents: Mapping[str, bytes], *, mode: str, owner: str = "root", group: str = "root"
) -> None:
    """Write small files, each by its absolute path.

    Raises:
        TransferError: naming the host and the file.
    """
    for path, content in contents.items():
        place = PurePosixPath(path)
        file = SentFile(place.name, hashlib.sha256(content).hexdigest(), len(content))
        transfer = Transfer(str(place.parent), (file,), owner, group, mode)
        _send(host, transfer, _opens(content))


def _opens(content: bytes) -> Callable[[SentFile], BinaryIO]:
    return lambda _: io.BytesIO(content)


def send_paths(
    host: Host, folder: str, paths: Sequence[tuple[SentFile, Path]], *, owner: str = layout.ACCOUNT
) -> send.Receipt:
    """Send files of this machine into a folder of the host; what is there already and right is left alone.

    Raises:
        TransferError: naming the host and the file; what arrived whole is kept.
    """
    where = {file.name: path for file, path in paths}
    transfer = Transfer(
        folder, tuple(file for file, _ in paths), owner, owner, "0640", reserve_bytes=RESERVE_BYTES
    )
    return _send(host, transfer, lambda file: where[file.name].open("rb", buffering=0))


def _send(host: Host, transfer: Transfer, open_file: Callable[[SentFile], BinaryIO]) -> send.Receipt:
    command, pieces = send.upload(transfer, open_file)
    output = remote.run(host, command, stdin=BinaryStdin(pieces), timeout=None)
    if not output.stdout.strip():
        raise TransferError("the transfer ended without an answer", host=host.name, found=output.complaint)
    return send.receipt(host.name, output.stdout)


def described(path: Path, name: str | None = None) -> SentFile:
    """A file of this machine with its hash, read from it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SentFile(name or path.name, digest, path.stat().st_size)


def unpack(host: Host, folder: str, tar: bytes) -> None:
    """Make a folder of a tar: beside its place first, renamed when it is whole, never half there."""
    archive = f"{folder}.tar"
    send_contents(host, {archive: tar}, mode="0600")
    beside = f"{folder}.new"
    script = [
        ["rm", "-rf", beside, folder],
        ["mkdir", "-m", "0755", beside],
        ["tar", "-x", "--no-same-owner", "-f", archive, "-C", beside],
        ["touch", f"{beside}/{FINISHED}"],
        ["mv", "-T", beside, folder],
        ["rm", archive],
    ]
    must(host, " && ".join(map(shlex.join, script)), what=f"unpack {folder}")


def fetch_model(primary: Host, run_id: str, folder: Path) -> tuple[Path, Path]:
    """The aggregated model and its manifest, from the primary, checked; not again what is here already.

    Raises:
        FleetError: the primary does not answer or has no model.
        TransferError: what arrived is not what the manifest says.
    """
    there = f"{layout.run(run_id)}/final"
    with _fetching:
        text = must(primary, [*_AS_WORKER, "cat", f"{there}/manifest.json"], what="read the model's manifest")
        expected = json.loads(text)["sha256"]
        model, manifest = folder / "model.safetensors", folder / "manifest.json"
        if not model.is_file() or described(model).sha256 != expected:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / "model.safetensors.part"
            fetch_file(primary, f"{there}/model.safetensors", part)
            if (found := described(part).sha256) != expected:
                raise TransferError(
                    "the model arrived damaged",
                    host=primary.name,
                    field=f"{there}/model.safetensors",
                    found=found,
                    expected=expected,
                    fix="Run the same command again",
                )
            part.replace(model)
        manifest.write_text(text, encoding="utf-8")
        return model, manifest


def fetch_file(host: Host, path: str, target: Path) -> None:
    """Read a file of the worker's on a host, through whatever login the host has."""
    encoded = remote.run(host, [*_AS_WORKER, "base64", "-w", "65536", path], timeout=None)
    if not encoded.ok:
        raise FleetError("cannot be read", host=host.name, field=path, found=encoded.stderr.strip() or None)
    target.write_bytes(base64.b64decode(encoded.stdout))
