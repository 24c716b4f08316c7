"""rclone's configuration on the control machine: which file, who may read it, what is in it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tailtrain.data.backends.program import bare_environment, find_program, variable_prefix
from tailtrain.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHERS = 0o077
_ENCRYPTED = re.compile(r"password|decrypt", re.IGNORECASE)
_DECLARED = re.compile(r"RCLONE_CONFIG_(.+)_TYPE")
# With these rclone opens an encrypted configuration; its other variables are read here, not there.
_OPENING = ("RCLONE_CONFIG_PASS", "RCLONE_PASSWORD_COMMAND")


def config_file(environ: Mapping[str, str]) -> Path | None:
    """The file that rclone would use, or None where there is none (https://rclone.org/docs/#config-string).

    Raises:
        DeclarationError: RCLONE_CONFIG names a file that is not there.
    """
    if named := environ.get("RCLONE_CONFIG"):
        path = Path(named).expanduser()
        if not path.is_file():
            raise DeclarationError(
                "there is no such file", field="RCLONE_CONFIG", found=path, fix="Correct it, or unset it"
            )
        return path
    home = Path(environ.get("HOME") or "~").expanduser()
    settings = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = (
        settings / "rclone" / "rclone.conf",
        home / ".config" / "rclone" / "rclone.conf",
        home / ".rclone.conf",
    )
    return next((place for place in places if place.is_file()), None)


def require_private(file: Path, project: Path, what: str) -> None:
    """Refuse a file with credentials that others may read, or that is in the project's folder.

    Raises:
        DeclarationError: it is so.
    """
    if file.resolve().is_relative_to(project.resolve()):
        raise DeclarationError(
            f"{what} is inside the project's folder, from where it is easily passed on",
            field=str(file),
            fix=f"Move it out: mv {file} ~/.config/rclone/",
        )
    mode = file.stat().st_mode
    if mode & _OTHERS:
        raise DeclarationError(
            f"{what} holds secrets, and others may read it",
            field=str(file),
            found=f"mode {mode & 0o777:04o}",
            expected="mode 0600",
            fix=f"chmod 600 {file}",
        )


def read_sections(file: Path | None, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The remotes of a configuration file, encrypted or not.

    Raises:
        DeclarationError: it cannot be read.
    """
    if file is None:
        return {}
    opening = {name: environ[name] for name in _OPENING if name in environ}
    answer = subprocess.run(
        [find_program(environ), "config", "dump", "--config", str(file), "--ask-password=false"],
        env=bare_environment(environ) | opening,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    try:
        if answer.returncode == 0:
            return msgspec.json.decode(answer.stdout, type=dict[str, dict[str, str]])
    except msgspec.DecodeError:
        pass
    if _ENCRYPTED.search(answer.stderr.decode(errors="replace")):
        raise DeclarationError(
            "rclone's configuration is encrypted",
            field=str(file),
            fix="Set RCLONE_CONFIG_PASS to its password, or RCLONE_PASSWORD_COMMAND to what prints it",
        )
    raise DeclarationError(
        "rclone cannot read its configuration", field=str(file), fix="Make it anew: rclone config"
    )


def declared_in(environ: Mapping[str, str]) -> set[str]:
    """Names of remotes that variables declare (RCLONE_CONFIG_NAME_TYPE), in small letters."""
    return {found[1].lower() for name in environ if (found := _DECLARED.fullmatch(name))}


def options_in(environ: Mapping[str, str], name: str) -> dict[str, str]:
    """Options of a remote that variables set; they go before those of the file, as for rclone."""
    prefix = variable_prefix(name)
    return {
        variable.removeprefix(prefix).lower(): value
        for variable, value in environ.items()
        if variable.startswith(prefix)
    }
