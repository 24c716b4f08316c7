"""Finding the rclone remote that a fleet is to use, and refusing what cannot work before anything is sent."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tailtrain.data.backends.credentials import drive_options, s3_options
from tailtrain.data.backends.remote import RCLONE_TYPES, Remote
from tailtrain.data.backends.sections import (
    config_file,
    declared_in,
    options_in,
    read_sections,
    require_private,
)
from tailtrain.errors import DeclarationError
from tailtrain.spec import StorageBackend

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailtrain.planning.storage_settings import StorageSettings

_SETTING = "group_data: storage"
# rclone allows more in names; these are the same on a command line, in a file and in a variable's name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def find_remote(
    backend: StorageBackend,
    settings: StorageSettings,
    *,
    project: Path,
    environ: Mapping[str, str],
) -> Remote:
    """Find the remote that group data names in rclone's configuration, and check what can be checked here.

    The configuration is the file that rclone would use (RCLONE_CONFIG or ~/.config/rclone/rclone.conf,
    encrypted or not), with the variables RCLONE_CONFIG_NAME_OPTION before it; a remote may be in variables
    alone. Nothing is sent.

    Args:
        backend: `s3` or `googleDriveTopological`.
        settings: what group data says; a file of certificates may be named from the project's folder.
        project: the folder of the inventory, which secrets must not be in.
        environ: as `os.environ`.

    Raises:
        DeclarationError: there is no such remote, or it cannot serve; says why and what to do.
        StorageError: rclone is not installed.
    """
    name, folder = _split(backend, settings.remote)
    proxy = _checked_proxy(settings.http_proxy)
    certificate = _checked_certificate(settings.ca_certificate, project)
    file = config_file(environ)
    if file is not None:
        require_private(file, project, "rclone's configuration")
    sections = read_sections(file, environ)
    options = sections.get(name, {}) | options_in(environ, name)
    if not options.get("type"):
        known = sorted(sections.keys() | declared_in(environ))
        raise DeclarationError(
            "rclone's configuration has no such remote",
            field=f"{_SETTING}.remote",
            found=f"{name}, in {file or 'no file and no variables'}",
            expected=f"one of {', '.join(known)}" if known else None,
            fix=f"Make it: rclone config create {name} {RCLONE_TYPES[backend]}, or name another",
        )
    if options["type"] != RCLONE_TYPES[backend]:
        raise DeclarationError(
            "this remote is of another kind",
            field=f"{_SETTING}.remote",
            found=f"{name}, type {options['type']}",
            expected=f"type {RCLONE_TYPES[backend]}, for storage_backend {backend.value}",
            fix="Name another remote, or set storage_backend accordingly",
        )
    options = {option: value for option, value in options.items() if value}
    if backend is StorageBackend.S3:
        options = s3_options(name, options, environ)
    else:
        options = drive_options(name, options, file.parent if file else project, project)
    _require_plain(name, options)
    return Remote(name, folder, backend, options, proxy, certificate)


def _split(backend: StorageBackend, remote: str | None) -> tuple[str, str]:
    """Name and folder."""
    field = f"{_SETTING}.remote"
    in_bucket = backend is StorageBackend.S3
    expected = '"name:bucket/folder"' if in_bucket else '"name:folder"'
    if backend not in RCLONE_TYPES:
        raise DeclarationError("this backend has no remote", field=field, found=backend.value)
    if not remote:
        raise DeclarationError(
            f"storage_backend {backend.value} needs a remote of rclone",
            field=field,
            found="nothing",
            expected=expected,
            fix="Make one with rclone config, then set storage in group_data/all.py",
        )
    name, colon, folder = remote.partition(":")
    folder = folder.strip("/")
    parts = folder.split("/") if folder else []
    wrong = not colon or not _NAME.fullmatch(name) or not folder.isprintable()
    if wrong or any(part in ("", ".", "..") for part in parts) or (in_bucket and not parts):
        raise DeclarationError("is no remote and folder", field=field, found=remote, expected=expected)
    return name, folder


def _checked_proxy(proxy: str | None) -> str | None:
    if not proxy:
        return None
    field, expected = f"{_SETTING}.http_proxy", '"http://host:port"'
    try:
        parts = urlsplit(proxy)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        fits = False
    else:
        if parts.username or parts.password:
            raise DeclarationError(
                "must not have a password in it: everybody on a node could see it",
                field=field,
                expected=expected,
                fix="Let the proxy know machines by their address",
            )
        fits = fits and parts.path in ("", "/") and not parts.query and not parts.fragment
    if not fits or re.search(r"\s", proxy):
        raise DeclarationError("is no proxy's address", field=field, found=proxy, expected=expected)
    return proxy.rstrip("/")


def _checked_certificate(certificate: str | None, project: Path) -> Path | None:
    if not certificate:
        return None
    field, path = f"{_SETTING}.ca_certificate", project / Path(certificate).expanduser()
    try:
        text = path.read_text(encoding="ascii")
        ssl.create_default_context(cadata=text)
    except OSError as error:
        if isinstance(error, ssl.SSLError):
            text = ""
        else:
            raise DeclarationError(
                "cannot be read", field=field, found=f"{path}: {error.strerror}"
            ) from error
    except ValueError:
        text = ""
    if "BEGIN CERTIFICATE" not in text or "PRIVATE KEY" in text:
        raise DeclarationError(
            "is not an authority's certificate",
            field=field,
            found=path,
            expected="a PEM file with certificates alone",
        )
    return path


def _require_plain(name: str, options: Mapping[str, str]) -> None:
    for option, value in options.items():
        # What begins with ` loses it in rclone's files, and %(name)s stands for another option there.
        if not value.isprintable() or value != value.strip() or value.startswith("`") or "%(" in value:
            raise DeclarationError(
                "has line breaks or other signs in it that rclone's configuration file cannot hold",
                field=f"rclone remote {name}: {option}",
                fix="Set it again: rclone config",
            )
