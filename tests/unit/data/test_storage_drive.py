"""Packs on Google Drive, end to end: rclone's real drive backend against the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailtrain.data.backends.listing import COPIES_DIFFER, list_packs
from tailtrain.data.backends.remote import node_flags
from tailtrain.data.backends.upload import upload
from tailtrain.errors import StorageError
from tailtrain.planning.layout import STORAGE_CA
from tailtrain.spec import StorageBackend
from tests.plans.situations import PROJECT
from tests.standins.drive import DriveStandIn
from tests.unit.data.storage_cases import RCLONE, damaged, make_packs, remote_at, variables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailtrain.data.backends.remote import Remote
    from tailtrain.data.backends.upload import Uploaded
    from tailtrain.data.packs import Pack

DRIVE = StorageBackend.GOOGLE_DRIVE_TOPOLOGICAL
SMALL, LARGE = 90_000, 9_000_000  # below 8 MiB in one call, above in pieces


@pytest.fixture(scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriveStandIn]:
    with closing(DriveStandIn(tmp_path_factory.mktemp("drive"))) as standin:
        yield standin


@pytest.fixture
def drive(_running: DriveStandIn) -> Iterator[DriveStandIn]:
    """The stand-in, behaving well at first and afterwards."""
    _running.control("forget")
    yield _running
    _running.control("mend")
    _running.control(
        "behave", page=1000, lag=0, quota=15 << 30, upload_limit=None, revoked=False, file_seconds=0
    )


class Fleet:
    """A remote in a folder of the test's own, and packs to bring there."""

    def __init__(self, drive: DriveStandIn, tmp_path: Path) -> None:
        self._drive, self._tmp_path = drive, tmp_path
        self.folder = f"fleet/{tmp_path.name}"
        self.remote = self.found(drive.options())

    def found(self, options: dict[str, str]) -> Remote:
        return remote_at(DRIVE, options, self.folder, self._tmp_path, **self._drive.settings())

    def packs(self, count: int, size: int = SMALL) -> tuple[Pack, ...]:
        return make_packs(self._tmp_path / "chunks", count, size)

    def upload(self, packs: tuple[Pack, ...], *, replace: bool = False, to: Remote | None = None) -> Uploaded:
        chunks, work = self._tmp_path / "chunks", self._tmp_path / "work"
        return upload(to or self.remote, packs, chunks, work, replace=replace)

    def damaged(self, packs: tuple[Pack, ...], of: Remote | None = None) -> list[str]:
        return damaged(of or self.remote, packs, self._tmp_path)

    def place(self, pack: Pack) -> str:
        return f"{self.folder}/packs/{pack.name}"

    def stored(self) -> list[list[object]]:
        found: list[list[object]] = self._drive.control("files", path=f"{self.folder}/packs")
        return found


@pytest.fixture
def fleet(drive: DriveStandIn, tmp_path: Path) -> Fleet:
    return Fleet(drive, tmp_path)


def test_packs_are_sent_once_listed_and_read_back_by_range(drive: DriveStandIn, fleet: Fleet) -> None:
    packs = (*fleet.packs(5), *fleet.packs(1, LARGE))
    empty = list_packs(fleet.remote)
    assert not empty.packs
    assert empty.free_bytes
    sent = fleet.upload(packs)
    assert (sent.packs, sent.bytes) == (6, 5 * SMALL + LARGE)
    drive.control("behave", page=4)
    listing = list_packs(fleet.remote)
    assert listing.missing(packs) == ()
    assert len(listing.packs) == 6
    assert listing.duplicates == {}
    assert listing.free_bytes == empty.free_bytes - sent.bytes
    drive.control("forget")
    assert fleet.damaged(packs) == []
    assert drive.control("traffic")["127.0.0.1"]["served"] == sent.bytes
    assert fleet.upload(packs).packs == 0


@pytest.mark.parametrize("login", ["options", "account_options"])
def test_a_nodes_configuration_stands_on_its_own(
    drive: DriveStandIn, fleet: Fleet, tmp_path: Path, login: str
) -> None:
    """Plain rclone reads with it, also after it has written a new access token into it."""
    remote = fleet.found(getattr(drive, login)())
    packs = fleet.packs(1)
    fleet.upload(packs, to=remote)
    config = tmp_path / "storage.conf"
    config.write_text(remote.node_config())
    flags = [str(remote.ca_certificate) if flag == STORAGE_CA else flag for flag in node_flags(remote)]
    for _ in range(2):
        command = [RCLONE, "lsf", remote.packs_path, "--config", str(config), *flags]
        assert subprocess.check_output(command, text=True, env={}) == f"{packs[0].name}\n"


def test_a_service_account_stores_on_a_shared_drive(drive: DriveStandIn, fleet: Fleet) -> None:
    remote = fleet.found(drive.account_options())
    packs = (*fleet.packs(2), *fleet.packs(1, LARGE))
    assert fleet.upload(packs, to=remote).packs == 3
    assert list_packs(remote).missing(packs) == ()
    assert list_packs(remote).free_bytes is None
    assert fleet.damaged(packs, of=remote) == []
    assert fleet.stored() == []
    assert len(drive.control("files", path=f"{fleet.folder}/packs", shared=True)) == 3


def test_a_service_account_cannot_store_on_a_drive_of_its_own(drive: DriveStandIn, fleet: Fleet) -> None:
    remote = fleet.found({**drive.account_options(), "team_drive": "", "impersonate": "nobody@example.com"})
    with pytest.raises(StorageError, match=r"a service account has no space of its own.*team_drive="):
        fleet.upload(fleet.packs(1), to=remote)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 403, "reason": "rateLimitExceeded", "message": "Rate Limit Exceeded", "times": 3},
        {"status": 503, "match": "upload_id="},
        {"mode": "drop", "match": "upload_id="},
        {"mode": "lost", "match": "upload_id="},
        {"mode": "drop", "match": "uploadType=multipart"},
    ],
    ids=lambda fault: "-".join(str(value) for value in fault.values()),
)
def test_what_passes_is_waited_for(drive: DriveStandIn, fleet: Fleet, fault: dict[str, object]) -> None:
    packs = (*fleet.packs(1), *fleet.packs(1, LARGE))
    drive.control("fault", **fault)
    fleet.upload(packs)
    assert list_packs(fleet.remote).missing(packs) == ()
    assert fleet.damaged(packs) == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"quota": SMALL}, r"too little room .*bytes free, expected 180,000 bytes for 2 packs\)"),
        ({"upload_limit": SMALL}, "takes no more today: 750 GiB.* tomorrow"),
        ({"revoked": True}, "does not take the refresh token.*rclone config reconnect fleet:"),
    ],
)
def test_limits_and_lost_logins_are_said(
    drive: DriveStandIn, fleet: Fleet, how: dict[str, object], words: str
) -> None:
    drive.control("behave", **how)
    with pytest.raises(StorageError, match=words):
        fleet.upload(fleet.packs(2))


def test_a_drive_that_gets_full_in_the_middle_is_said(drive: DriveStandIn, fleet: Fleet) -> None:
    message = "The user's Drive storage quota has been exceeded."
    drive.control("fault", status=403, reason="storageQuotaExceeded", message=message, match="uploadType")
    with pytest.raises(StorageError, match="Google Drive is full"):
        fleet.upload(fleet.packs(1))


def test_a_wrong_client_secret_is_said_and_not_shown(drive: DriveStandIn, fleet: Fleet) -> None:
    remote = fleet.found({**drive.options(), "client_secret": "sentinel-secret"})
    with pytest.raises(StorageError, match="does not know the client id") as caught:
        list_packs(remote)
    assert "sentinel" not in str(caught.value)


def test_a_truncated_pack_is_sent_again_and_a_rotten_one_replaced(drive: DriveStandIn, fleet: Fleet) -> None:
    packs = fleet.packs(3)
    fleet.upload(packs)
    drive.control("truncate", path=fleet.place(packs[0]), size=SMALL - 7)
    assert list_packs(fleet.remote).missing(packs) == packs[:1]
    assert fleet.upload(packs).packs == 1
    drive.control("rot", path=fleet.place(packs[1]))
    assert list_packs(fleet.remote).missing(packs) == ()
    assert fleet.damaged(packs) == [packs[1].name]
    assert fleet.upload(packs[1:2], replace=True).packs == 1
    assert fleet.damaged(packs) == []
    assert len(fleet.stored()) == 3


def test_a_pack_that_is_there_twice_does_no_harm(drive: DriveStandIn, fleet: Fleet) -> None:
    packs = fleet.packs(2)
    fleet.upload(packs)
    drive.control("double", path=fleet.place(packs[0]))
    listing = list_packs(fleet.remote)
    assert listing.duplicates == {packs[0].name: 2}
    assert listing.missing(packs) == ()
    assert fleet.damaged(packs) == []
    drive.control("truncate", path=fleet.place(packs[0]), size=5)
    assert list_packs(fleet.remote).packs[packs[0].name] == COPIES_DIFFER
    assert fleet.upload(packs).packs == 1
    assert list_packs(fleet.remote).duplicates == {}
    assert fleet.damaged(packs) == []


def test_a_rotten_pack_that_is_there_twice_is_replaced(drive: DriveStandIn, fleet: Fleet) -> None:
    packs = fleet.packs(1)
    fleet.upload(packs)
    drive.control("rot", path=fleet.place(packs[0]))
    drive.control("double", path=fleet.place(packs[0]))
    assert fleet.upload(packs, replace=True).packs == 1
    assert fleet.damaged(packs) == []
    assert len(fleet.stored()) == 1


def test_folders_of_the_same_name_are_named_and_rclone_makes_them_one(
    drive: DriveStandIn, fleet: Fleet, tmp_path: Path
) -> None:
    packs = fleet.packs(2)
    fleet.upload(packs)
    drive.control("double", path=f"{fleet.folder}/packs")
    with pytest.raises(StorageError, match=r"2 folders of the name 'packs'.*rclone dedupe skip") as caught:
        list_packs(fleet.remote)
    assert caught.value.fix
    command = caught.value.fix.partition("rclone ")[2].split()
    settings = drive.settings()
    subprocess.run(
        [
            *(RCLONE, *command, "--config="),
            *("--http-proxy", settings["http_proxy"], "--ca-cert", settings["ca_certificate"]),
        ],
        env=variables("fleet", drive.options()),
        check=True,
        capture_output=True,
    )
    assert list_packs(fleet.remote).missing(packs) == ()


def test_other_folders_of_these_names_do_not_matter(drive: DriveStandIn, fleet: Fleet) -> None:
    fleet.upload(fleet.packs(1))
    drive.control("double", path=fleet.folder)
    other = Fleet(drive, fleet._tmp_path)
    other.folder = "elsewhere"
    other.remote = other.found(drive.options())
    assert list_packs(other.remote).packs == {}


def test_a_lost_answer_about_a_new_folder_is_noticed_before_anything_is_sent(
    drive: DriveStandIn, fleet: Fleet
) -> None:
    """The folder is made, nobody hears of it, and it is made again: Drive has two of the same name."""
    drive.control("fault", mode="lost", match="POST /drive/v3/files")
    with pytest.raises(StorageError, match="2 folders of the name"):
        fleet.upload(fleet.packs(1))
    assert fleet.stored() == []


def test_listings_that_lag_make_no_second_folder_and_harmless_copies(
    drive: DriveStandIn, fleet: Fleet
) -> None:
    packs = fleet.packs(2)
    drive.control("behave", lag=1.5)
    fleet.upload(packs[:1])
    assert fleet.upload(packs).packs == 2
    time.sleep(1.5)
    listing = list_packs(fleet.remote)
    assert set(listing.duplicates) <= {packs[0].name}
    assert listing.missing(packs) == ()
    assert fleet.damaged(packs) == []


def children_of(process: int) -> dict[str, str]:
    """The command lines of a process's children, by their ids."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def test_killed_in_the_middle_nothing_goes_on(drive: DriveStandIn, fleet: Fleet, tmp_path: Path) -> None:
    """What the killed process had started ends too; what had arrived is not sent again."""
    packs = (*fleet.packs(1), *fleet.packs(1, LARGE))
    fleet.upload(packs[:1])
    drive.control("behave", file_seconds=6)
    program = f"""
from pathlib import Path
from tests.standins.drive import DriveStandIn
from tests.unit.data.storage_cases import make_packs, remote_at
from tailtrain.data.backends.remote import node_flags
from tailtrain.data.backends.upload import upload
from tailtrain.spec import StorageBackend
folder, sizes = Path({str(tmp_path)!r}), (({SMALL}, 1), ({LARGE}, 1))
remote = remote_at(StorageBackend("googleDriveTopological"), {drive.options()!r}, {fleet.folder!r}, folder,
                   **{drive.settings()!r})
packs = tuple(pack for size, count in sizes for pack in make_packs(folder / "chunks", count, size))
upload(remote, packs, folder / "chunks", folder / "work")
"""
    sending: set[str] = set()
    with subprocess.Popen([sys.executable, "-c", program], cwd=PROJECT) as process:
        while not sending:
            sending = {child for child, line in children_of(process.pid).items() if " copy " in line}
            time.sleep(0.02)
        process.kill()
    end = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in sending):
        assert time.monotonic() < end
        time.sleep(0.05)
    drive.control("behave", file_seconds=0)
    assert fleet.upload(packs).packs == 1
    assert list_packs(fleet.remote).missing(packs) == ()


def command_lines_until(over: threading.Event) -> set[str]:
    """The command lines of all that this process starts, until told to stop."""
    seen: set[str] = set()
    while not over.wait(0.01):
        seen.update(children_of(os.getpid()).values())
    return seen


def test_what_the_login_has_is_in_no_argument_and_in_no_message(
    drive: DriveStandIn, fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every rclone that an upload starts is looked at while it runs, as any user of the machine could."""
    secrets = fleet.remote.secrets
    assert drive.options()["client_secret"] in secrets
    assert json.loads(fleet.remote.options["token"])["refresh_token"] in secrets
    over = threading.Event()
    with ThreadPoolExecutor() as threads:
        watching = threads.submit(command_lines_until, over)
        fleet.upload(fleet.packs(1))
        over.set()
        seen = " ".join(watching.result())
    assert f"copy {fleet._tmp_path}/work" in seen
    assert [secret for secret in secrets if secret in seen] == []
    assert capfd.readouterr() == ("", "")
