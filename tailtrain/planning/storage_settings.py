"""Where a storage backend keeps the data, as group data names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailtrain.errors import DeclarationError
from tailtrain.planning.settings_errors import unknown, wrong
from tailtrain.spec import StorageBackend, TrainingConfiguration
from tailtrain.spec.problems import Problems

_REMOTE = re.compile(r"[\w.+@][\w.+@ -]*:[^\0\n]*")
_PROXY = re.compile(r"https?://[^\s\0/@]+/?")
_FORMS = {
    "remote": (_REMOTE, "a remote of rclone and a folder there, name:folder"),
    "http_proxy": (_PROXY, "http://host:port, without a password, or None"),
    "ca_certificate": (re.compile(r"[^\0]+"), "the path of a file of certificates, or None"),
}


@dataclass(frozen=True)
class StorageSettings:
    """Where a storage backend keeps the data; nothing of it is a secret.

    Attributes:
        remote: a remote of rclone's configuration and a folder there, `name:folder`; None for `local`.
        http_proxy: the proxy, http(s)://host:port, by which the backend is reached, or None.
        ca_certificate: a file of certificates (PEM) that the backend's is checked with, or None for the
            system's.
    """

    remote: str | None = None
    http_proxy: str | None = None
    ca_certificate: str | None = None


def storage_settings(value: object) -> StorageSettings:
    """Read what group data says of `storage`.

    Args:
        value: as it stands there.

    Raises:
        DeclarationError: naming what is unknown or wrong.
    """
    if not isinstance(value, Mapping):
        raise wrong("storage", value, "a dictionary")
    problems = Problems()
    for name, found in value.items():
        with problems.gathered():
            if name not in _FORMS:
                raise unknown(str(name), f"storage.{name}", _FORMS, None)
            form, expected = _FORMS[name]
            if found is not None and not (isinstance(found, str) and form.fullmatch(found)):
                raise wrong(f"storage.{name}", found, expected)
    problems.raise_if_any()
    return StorageSettings(**value)


def require_remote(training: TrainingConfiguration, storage: StorageSettings) -> None:
    """Check that a backend that keeps the data has a place to keep them in.

    Raises:
        DeclarationError: no remote is named.
    """
    backend = training.storage_backend
    if backend is not StorageBackend.LOCAL and storage.remote is None:
        raise DeclarationError(
            f"storage_backend {backend.value} keeps the data with a remote of rclone, and none is named",
            field="group_data: storage",
            expected='{"remote": "name:folder"}',
            fix='Make one with `rclone config` and name it, or set storage_backend = "local"',
        )
