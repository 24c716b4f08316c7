"""Storage backends on real hosts: S3 and a stand-in for Google Drive, each through a whole run."""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.data.backends.program import find_program
from tailtrain.planning.guarantees import RunRecord, losses
from tests.lab.pair import CHUNKS
from tests.lab.trio import CONTROL_ADDRESS, CREDENTIALS, HOSTS, numbers, planned
from tests.standins import s3
from tests.standins.drive import DriveStandIn
from tests.standins.drive_behaviour import REFRESH_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.lab.trio import Trio
    from tests.standins.s3 import S3StandIn

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

BUCKET = "fleet:bucket/of the fleet"
DRIVE = "fleet:tailtrain"


@pytest.fixture(scope="module")
def bucket(trio: Trio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3StandIn]:
    """An S3 server on the control side, with one bucket."""
    folder = tmp_path_factory.mktemp("s3")
    (folder / "bucket").mkdir()
    with closing(
        s3.start_rclone(folder, find_program({}), CONTROL_ADDRESS, trio.lab.control_command)
    ) as found:
        yield found


@pytest.fixture(scope="module")
def drive(trio: Trio) -> Iterator[DriveStandIn]:
    """A stand-in for Google Drive on the control side."""
    with (
        tempfile.TemporaryDirectory(prefix="drive") as folder,
        closing(DriveStandIn(Path(folder), CONTROL_ADDRESS, trio.lab.control_command)) as found,
    ):
        yield found


def availability(trio: Trio) -> Mapping[str, str]:
    """How the report judged that data can be had from any node."""
    found = sorted(
        (trio.folder / ".tailtrain" / "runs").glob("*/report.json"), key=lambda p: p.stat().st_mtime
    )
    guarantees = json.loads(found[-1].read_text())["guarantees"]
    judged: Mapping[str, str] = next(each for each in guarantees if each["name"] == "dataAvailability")
    return judged


class TestS3:
    """A bucket: uploaded once, each node fetches its own."""

    def test_a_whole_run(self, trio: Trio, bucket: S3StandIn) -> None:
        trio.use("s3", {"remote": BUCKET}, bucket.options())
        document = trio.plan()
        assert {source for by in planned(document).values() for source in by} == {BUCKET}
        said = trio.deploy("train")
        assert numbers(trio.served(said)) == planned(document)
        assert availability(trio)["verdict"] == "met", availability(trio)
        assert "from s3" in availability(trio)["measured"]
        assert trio.said(0, "tailtrain", "plan").count("No changes") == 1

    def test_credentials_are_with_the_worker_alone_and_nowhere_else(
        self, trio: Trio, bucket: S3StandIn
    ) -> None:
        secret = bucket.options()["secret_access_key"]
        for host in HOSTS:
            assert trio.on(host, f"stat -c '%a %U:%G' {CREDENTIALS}").strip() == "600 tailtrain:tailtrain"
            places = trio.on(
                host, f"grep -rlF '{secret}' /etc /var/lib/tailtrain /opt/tailtrain /run 2>/dev/null; true"
            )
            assert places.split() == [CREDENTIALS]
            assert secret not in trio.on(host, "journalctl --no-pager -o cat; cat /proc/[0-9]*/cmdline")
        texts = [path for path in trio.folder.rglob("*") if path.is_file()]
        assert not [path for path in texts if secret.encode() in path.read_bytes()]
        assert secret not in json.dumps(trio.plan())

    def test_a_pack_that_is_damaged_there_is_mended(self, trio: Trio, bucket: S3StandIn) -> None:
        assert bucket.folder
        packs = [path for path in bucket.folder.rglob("packs/*") if path.is_file()]
        whole = {path: path.read_bytes() for path in packs}
        for path, content in whole.items():
            path.write_bytes(bytes(len(content)))
        trio.lose_chunks("beta", 3)
        # Of what other nodes have, nothing is missing; so they are asked where the backend fails.
        said = trio.deploy("distribute")
        assert "uploaded again, damaged there" in said
        mended = [path for path, content in whole.items() if path.read_bytes() == content]
        assert mended
        assert trio.said(0, "tailtrain", "plan").count("No changes") == 1
        for path, content in whole.items():
            path.write_bytes(content)

    def test_a_bucket_that_is_gone_is_named_and_nothing_is_changed(
        self, trio: Trio, bucket: S3StandIn
    ) -> None:
        trio.lose_chunks("gamma", 2)
        before = trio.on("gamma", f"ls -l {CHUNKS} | tail -n +2")
        trio.environment["RCLONE_CONFIG_FLEET_ENDPOINT"] = f"http://{CONTROL_ADDRESS}:9"
        said = trio.said(1, "tailtrain", "plan")
        assert BUCKET in said
        assert "Traceback" not in said
        assert trio.on("gamma", f"ls -l {CHUNKS} | tail -n +2") == before
        trio.use("s3", {"remote": BUCKET}, bucket.options())
        trio.deploy("distribute")

    def test_going_back_to_local_takes_the_credentials_away(self, trio: Trio) -> None:
        trio.use("local", {}, {})
        trio.deploy("provision")
        for host in HOSTS:
            assert "No such file" in trio.on(host, f"ls {CREDENTIALS} 2>&1; true")


class TestDrive:
    """Google Drive, and neighbours before it where the path to them is direct."""

    def test_a_whole_run_counts_what_each_source_served(self, trio: Trio, drive: DriveStandIn) -> None:
        trio.use("googleDriveTopological", {"remote": DRIVE, **drive.settings()}, drive.options())
        for host in HOSTS:
            trio.on(host, f"rm -f {CHUNKS}/*")
        drive.control("forget")
        document = trio.plan()
        sources = {source for by in planned(document).values() for source in by}
        assert sources == {DRIVE, *HOSTS}
        said = trio.deploy("train")
        served = trio.served(said)
        assert numbers(served) == planned(document)
        traffic = drive.control("traffic")
        for host in HOSTS:
            address = trio.on(host, "tailscale ip -4").strip()
            kilobytes = traffic[address]["served"] / 1000
            said_kilobytes = served[host][DRIVE][1]  # in MB, with one digit after the point
            assert said_kilobytes - 50 <= kilobytes <= 1.1 * said_kilobytes + 100
        assert availability(trio)["verdict"] == "met", availability(trio)
        assert trio.said(0, "tailtrain", "plan").count("No changes") == 1

    def test_no_token_is_seen_anywhere_but_in_the_worker_s_file(self, trio: Trio) -> None:
        for host in HOSTS:
            places = trio.on(
                host, f"grep -rlF '{REFRESH_TOKEN}' /etc /var/lib/tailtrain /opt/tailtrain 2>/dev/null; true"
            )
            assert places.split() == [CREDENTIALS]
        texts = [path for path in trio.folder.rglob("*") if path.is_file()]
        assert not [path for path in texts if REFRESH_TOKEN.encode() in path.read_bytes()]

    def test_a_neighbour_is_preferred_to_the_drive_and_the_drive_to_a_relayed_path(self, trio: Trio) -> None:
        trio.lose_chunks("gamma", 12)
        assert DRIVE not in planned(trio.plan())["gamma"]
        trio.lab.host("gamma").relay()
        try:
            document = trio.plan()
            assert planned(document)["gamma"] == {DRIVE: 12}
            why = {each["why"] for h in document["hosts"] for each in h["sources"]}
            assert why == {"rather than by a relayed path"}
            said = trio.deploy("distribute")
            assert numbers(trio.served(said)) == {"gamma": {DRIVE: 12}}
        finally:
            trio.lab.host("gamma").restore()

    def test_a_neighbour_that_falls_silent_is_replaced_by_the_drive(self, trio: Trio) -> None:
        trio.lose_chunks("gamma", 12)
        for host in ("alpha", "beta"):
            trio.on(host, "systemctl kill --signal=STOP tailtrain-chunks.service")
        try:
            said = trio.deploy("distribute")
        finally:
            for host in ("alpha", "beta"):
                trio.on(host, "systemctl kill --signal=CONT tailtrain-chunks.service")
        assert numbers(trio.served(said)) == {"gamma": {DRIVE: 12}}
        assert "planned from" in said

    def test_a_limit_of_the_day_is_said_and_the_relayed_path_taken(
        self, trio: Trio, drive: DriveStandIn
    ) -> None:
        trio.lose_chunks("gamma", 4)
        trio.lab.host("gamma").relay()
        drive.control("fault", status=403, reason="downloadQuotaExceeded", times=1000, match="alt=media")
        try:
            said = trio.deploy("distribute")
        finally:
            drive.control("mend")
            trio.lab.host("gamma").restore()
        assert "the backend is at a limit" in said
        assert DRIVE not in trio.served(said)["gamma"]


class TestLoss:
    """A node is lost for good in the middle of a run."""

    def test_its_records_are_trained_by_the_others_in_the_same_run(self, trio: Trio) -> None:
        trio.use("local", {}, {})
        size = trio.declare_small_data_set()
        trio.set("target_tokens", str(200 * size))  # more than any machine trains before it is stopped
        trio.deploy("provision", "distribute")
        with trio.in_the_background("pyinfra", "-y", "inventory.py", "deploys/train.py"):
            trio.wait_for_round(0)
            trio.lab.host("gamma").power_cut()
            trio.wait_for(lambda rounds: taken_over(rounds) > 0 and trained_to_the_end(rounds))
            trio.run("tailtrain", "stop")
        rounds = trio.progress("alpha")
        assert rounds[0]["round"] == 0
        found = losses(RunRecord(rounds, (), {}, {}, {}, {}, {}))
        assert (found.rounds, found.tokens) == (0, 0)
        trained = sum(member["tokens"] for each in rounds for member in each["group"])
        assert trained == rounds[-1]["total_tokens"]


def without_gamma(rounds: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [each for each in rounds if not any(m["node"] == "gamma" for m in each["group"])]


def taken_over(rounds: Sequence[Mapping[str, Any]]) -> int:
    """How many of gamma's records were trained by others."""
    return sum(m["for"].get("gamma", 0) for each in without_gamma(rounds) for m in each["group"])


def trained_to_the_end(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all of gamma's records were trained, at least once, by whoever."""
    shards = without_gamma(rounds)[-1]["epochs"].values()
    return all(sum(of["gamma"]) >= 1 for of in shards)
