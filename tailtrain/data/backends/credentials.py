"""Whether a remote's options let the control machine store and nodes read; what they lack to stand alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrain.data.backends.program import variable_prefix
from tailtrain.data.backends.sections import require_private
from tailtrain.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN_CLIENT = "https://rclone.org/drive/#making-your-own-client-id"

_STORING_SCOPES = {"drive", "drive.file", "drive.appfolder"}
_AWS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",  # the name of a variable, as the others
    "session_token": "AWS_SESSION_TOKEN",
}


def s3_options(name: str, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """S3's options with the access key in them.

    Raises:
        DeclarationError: there is no access key that nodes could have as well.
    """
    found = {option: value for option, value in options.items() if option != "env_auth"}
    if _is_true(options.get("env_auth")) and not found.get("access_key_id"):
        found |= {option: environ[variable] for option, variable in _AWS.items() if environ.get(variable)}
    for option in ("access_key_id", "secret_access_key"):
        if not found.get(option):
            variable = variable_prefix(name) + option.upper()
            raise DeclarationError(
                "S3 needs an access key that nodes can have as well",
                field=f"rclone remote {name}: {option}",
                found="nothing",
                fix=f"Set it with rclone config, or {variable} (env_auth: {_AWS[option]})",
            )
    return found


def drive_options(name: str, options: Mapping[str, str], config_dir: Path, project: Path) -> dict[str, str]:
    """Google Drive's options, with what is in the service account's file in place of its name.

    Raises:
        DeclarationError: the account cannot store there, or not for long.
    """
    found = dict(options)
    field = f"rclone remote {name}"
    scope = found.get("scope") or "drive"
    if not _STORING_SCOPES & set(scope.replace(",", " ").split()):
        raise DeclarationError(
            "this scope cannot store",
            field=f"{field}: scope",
            found=scope,
            expected="drive or drive.file",
            fix=f"rclone config update {name} scope=drive, then rclone config reconnect {name}:",
        )
    file = found.pop("service_account_file", "")
    if file and not found.get("service_account_credentials"):
        found["service_account_credentials"] = _service_account(name, file, config_dir, project)
    if found.get("service_account_credentials"):
        _require_space(name, found)
        found.pop("token", None)
        return found
    if not found.get("client_id"):
        raise DeclarationError(
            "Google Drive needs a client id of your own: the one that all who use rclone share stops working "
            "during 2026",
            field=f"{field}: client_id",
            found="nothing",
            fix=f"Make one ({OWN_CLIENT}), set client_id and client_secret with rclone config, then "
            f"rclone config reconnect {name}:",
        )
    _require_token(name, found)
    return found


def _service_account(name: str, file: str, config_dir: Path, project: Path) -> str:
    path = Path(file.replace("${RCLONE_CONFIG_DIR}", str(config_dir))).expanduser()
    field = f"rclone remote {name}: service_account_file"
    try:
        found: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise DeclarationError("cannot be read", field=field, found=f"{path}: {error.strerror}") from error
    except ValueError:
        found = None
    require_private(path, project, "the service account's key")
    if not isinstance(found, dict) or not {"client_email", "private_key"} <= found.keys():
        raise DeclarationError(
            "is not the key of a service account",
            field=field,
            found=path,
            fix="Make a JSON key at https://console.cloud.google.com/iam-admin/serviceaccounts",
        )
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def _require_space(name: str, options: Mapping[str, str]) -> None:
    if options.get("team_drive") or options.get("impersonate"):
        return
    raise DeclarationError(
        "a service account has no space of its own on Google Drive, so it cannot store",
        field=f"rclone remote {name}: team_drive",
        found="nothing",
        expected="the id of a shared drive on which it is a content manager",
        fix=f"rclone config update {name} team_drive=ID; without a shared drive, log in as a person: "
        f"rclone config reconnect {name}:",
    )


def _require_token(name: str, options: Mapping[str, str]) -> None:
    try:
        token: Any = json.loads(options.get("token") or "{}")
    except ValueError:
        token = None
    if not isinstance(token, dict) or not (token.get("refresh_token") or token.get("access_token")):
        raise DeclarationError(
            "nobody is logged in to Google Drive",
            field=f"rclone remote {name}: token",
            found="nothing" if token == {} else "something that is no token",
            fix=f"rclone config reconnect {name}:",
        )


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("true", "1", "t")
