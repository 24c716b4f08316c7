"""What inventory and group data say of logging in and running commands: pyinfra's and the connector's keys.

pyinfra checks the types of some of these, late and in its own words, and passes over names that it does not
know: a misspelt `ssh_user` would log in as somebody else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

from paramiko import SSHClient
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.util import raise_if_bad_type

from tailtrain.errors import DeclarationError
from tailtrain.spec.problems import nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinfra.api.inventory import Inventory

_OURS = ("ssh_", "tailscale_")
_OF_NODES = frozenset({"tailscale_ip"})
_ARGUMENTS = dict(all_global_arguments())
_MISSPELT = 0.75  # how alike two names must be: one wrong letter of four
_HIGHEST_PORT = 65_535


def host_settings_problems(inventory: Inventory) -> Iterator[DeclarationError]:
    """What is wrong with these keys, wherever they are set."""
    known: dict[str, Any] = {}
    for host in inventory:
        known |= get_type_hints(host.connector_cls.data_cls)
    places: list[tuple[str, str | None, Mapping[Any, object]]] = [
        ("--data: ", None, inventory.override_data),
        *(("", host.name, inventory.host_data[host.name]) for host in inventory),
        *((f"group_data/{group}.py: ", None, data) for group, data in inventory.group_data.items()),
        ("group_data/all.py: ", None, inventory.data),
    ]
    for where, host_name, data in places:
        for key, value in data.items():
            told = partial(DeclarationError, host=host_name, field=f"{where}{key}")
            if problem := _problem(key, value, known, told):
                yield problem


def _problem(
    key: object, value: object, known: Mapping[str, Any], told: Callable[..., DeclarationError]
) -> DeclarationError | None:
    if not isinstance(key, str):
        return told("a key that is no text", found=shown(key), expected='a name, such as "cores"')
    kind = known.get(key, _ARGUMENTS.get(key))
    if kind is None:
        return _unknown(key, known, told)
    try:
        raise_if_bad_type(value, kind, TypeError, "")
    except TypeError:
        return told("wrong value", found=_found(key, value), expected=_in_words(kind))
    accepts, expected = _LIMITS.get(key, (_anything, ""))
    return None if accepts(value) else told("wrong value", found=_found(key, value), expected=expected)


def _unknown(
    key: str, known: Mapping[str, Any], told: Callable[..., DeclarationError]
) -> DeclarationError | None:
    """A key that nobody reads, where it looks as if somebody were meant to."""
    own = key.startswith(_OURS) and key not in _OF_NODES
    near = (
        nearest(key, known if own else _ARGUMENTS, cutoff=_MISSPELT) if own or key.startswith("_") else None
    )
    if near:
        return told("no such key", expected=near, fix=f"Did you mean {near}?")
    return told("no such key", fix="Start its name with _ if it is your own") if own else None


def _in_words(kind: Any) -> str:
    words: dict[Any, str] = {
        bool: "True or False",
        str: "a text",
        int: "a whole number",
        float: "a number",
        dict: "a dictionary",
        Mapping: "a dictionary",
        Iterable: "a list",
        Callable: "a function",
    }
    return words.get(get_origin(kind) or kind, "another kind of value")


def _found(key: str, value: object) -> str:
    return f"a value of type {type(value).__name__}" if "password" in key else shown(value)


def _anything(_: object) -> bool:
    return True


def _above_zero(value: float) -> bool:
    return 0 < value < float("inf")


def _not_below_zero(value: float) -> bool:
    return 0 <= value < float("inf")


def _accepted_by_paramiko(value: Mapping[str, object]) -> bool:
    return set(value) <= set(inspect.signature(SSHClient.connect).parameters) - {"self", "hostname"}


# What a value of the right type must be besides.
_LIMITS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "ssh_port": (lambda value: 0 < value <= _HIGHEST_PORT, f"a port from 1 to {_HIGHEST_PORT}"),
    "ssh_user": (bool, "a user's name"),
    "ssh_config_file": (lambda value: Path(value).expanduser().is_file(), "a file that is there"),
    "ssh_file_transfer_protocol": (lambda value: value in ("sftp", "scp"), '"sftp" or "scp"'),
    "ssh_strict_host_key_checking": (
        lambda value: value in ("yes", "no", "off", "ask", "accept-new"),
        '"yes", "accept-new", "ask", "no" or "off"',
    ),
    "ssh_paramiko_connect_kwargs": (_accepted_by_paramiko, "arguments that paramiko's connect() has"),
    "ssh_connect_retries": (_not_below_zero, "0 or more"),
    "ssh_connect_retry_min_delay": (_not_below_zero, "seconds, 0 or more"),
    "ssh_connect_retry_max_delay": (_not_below_zero, "seconds, 0 or more"),
    "tailscale_command_timeout": (_above_zero, "seconds, above 0"),
    "tailscale_check_timeout": (_above_zero, "seconds, above 0"),
    "tailscale_silence": (_above_zero, "seconds, above 0"),
    "_timeout": (_above_zero, "seconds, above 0"),
    "_retries": (_not_below_zero, "0 or more"),
    "_retry_delay": (_not_below_zero, "seconds, 0 or more"),
}
