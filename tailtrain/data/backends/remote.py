"""A storage backend that was found: where it is, how it is reached, and what nodes are told of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailtrain.data.packs import PACK_FOLDER
from tailtrain.planning.layout import STORAGE_CA
from tailtrain.spec import StorageBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

RCLONE_TYPES: Mapping[StorageBackend, str] = {
    StorageBackend.S3: "s3",
    StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL: "drive",
}
"""What rclone calls the backends that it is used for; `local` is none of them."""

_SECRET_WORDS = ("secret", "key", "token", "pass", "credentials")
_NO_SECRET = ("_type", "_uri", "_url")
_LONG_AGO = "2000-01-01T00:00:00Z"
_SHORTEST_SECRET = 4


@dataclass(frozen=True)
class Remote:
    """One remote of rclone's configuration, checked; its options are not shown.

    Attributes:
        name: what rclone's configuration calls it.
        folder: the bucket and folder, or the folder on the Drive, without slashes at its ends; may be empty.
        backend: S3 or Google Drive.
        options: rclone's options of it, secrets among them.
        http_proxy: the proxy that leads to it, if not directly; on nodes too.
        ca_certificate: the file of an authority that vouches for it, if not one that everybody trusts.
    """

    name: str
    folder: str
    backend: StorageBackend
    options: Mapping[str, str] = field(repr=False, hash=False)
    http_proxy: str | None = None
    ca_certificate: Path | None = None

    @property
    def path(self) -> str:
        """The folder, as rclone is told it."""
        return f"{self.name}:{self.folder}"

    @property
    def packs_path(self) -> str:
        """The folder of packs, as rclone is told it."""
        return f"{self.name}:{self.folder}/{PACK_FOLDER}" if self.folder else f"{self.name}:{PACK_FOLDER}"

    @property
    def bucket(self) -> str:
        """The bucket alone, or the topmost folder, as rclone is told it."""
        return f"{self.name}:{self.folder.partition('/')[0]}"

    @property
    def on_drive(self) -> bool:
        """Whether it is Google Drive, whose names need not be unique."""
        return self.backend is StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen anywhere, the longest first."""
        found = {
            text
            for name, value in self.options.items()
            if _is_secret(name)
            for text in _parts_of(value)
            if len(text) >= _SHORTEST_SECRET
        }
        return tuple(sorted(found, key=lambda text: (-len(text), text)))

    def masked(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def node_config(self) -> str:
        """What nodes have as rclone's configuration: this remote alone, the same text for the same options.

        It stands on its own: a service account is in it, not the name of a file. Access tokens, which are
        good for an hour, are left out where a refresh token can get new ones, so the file need not change.
        """
        options = dict(self.options)
        if token := options.get("token"):
            options["token"] = _lasting(token)
        del options["type"]
        lines = [f"[{self.name}]", f"type = {RCLONE_TYPES[self.backend]}"]
        return "\n".join([*lines, *(f"{name} = {options[name]}" for name in sorted(options)), ""])

    def certificate_text(self) -> str | None:
        """The authority's certificate, for nodes; None where none is set."""
        return self.ca_certificate.read_text(encoding="ascii") if self.ca_certificate else None


def node_flags(remote: Remote) -> tuple[str, ...]:
    """Flags with which nodes run rclone for this remote, so that they behave as the control machine does."""
    return _flags(remote, STORAGE_CA)


def control_flags(remote: Remote) -> tuple[str, ...]:
    """The same for the control machine."""
    return _flags(remote, str(remote.ca_certificate))


def _flags(remote: Remote, certificate: str) -> tuple[str, ...]:
    flags = []
    if remote.http_proxy:
        flags += ["--http-proxy", remote.http_proxy]
    if remote.ca_certificate:
        flags += ["--ca-cert", certificate]
    if remote.on_drive:
        # Limits of a day do not pass by waiting; rclone's own pacer (10 calls a second, doubling pauses when
        # Drive says that it is too much) stays as it is.
        flags += ["--drive-stop-on-upload-limit", "--drive-stop-on-download-limit"]
    else:
        # A bucket is never made by the way: its name may be a slip, and not every key may look for it.
        flags += ["--s3-no-check-bucket"]
    return tuple(flags)


def _lasting(token: str) -> str:
    found = json.loads(token)
    if found.get("refresh_token"):
        # rclone takes an empty access token for one of its first versions, which had no refresh tokens.
        found |= {"access_token": "expired", "expiry": _LONG_AGO}
        found.pop("expires_in", None)
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def _parts_of(value: str) -> Iterator[str]:
    """A value, and where it is JSON, the secrets in it, line by line and as JSON writes them."""
    yield value
    try:
        found = json.loads(value)
    except ValueError:
        return
    if isinstance(found, dict):
        yield from _texts(found)


def _is_secret(name: str) -> bool:
    return any(word in name for word in _SECRET_WORDS) and not name.endswith(_NO_SECRET)


def _texts(found: dict[str, Any]) -> Iterator[str]:
    for name, value in found.items():
        if isinstance(value, str) and _is_secret(name):
            yield from value.splitlines()
            yield json.dumps(value)[1:-1]
