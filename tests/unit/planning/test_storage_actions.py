"""What hosts are to do about a storage backend, chunk servers and chunks, and in which words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.planning import layout
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.rendering.plan import summary
from tailtrain.planning.work import CREDENTIALS_MODE
from tests.plans.situations import NAMES, PRIMARY, SEVENTH, STORAGE, Situation

if TYPE_CHECKING:
    from tailtrain.planning.parts import Action

S3, DRIVE = "s3", "googleDriveTopological"
PACKS = {"a": 4_000_000, "b": 2_300_000}


def action(situation: Situation, name: str, key: str) -> Action | None:
    return next((each for each in situation.plan().host(name).actions if each.key == key), None)


def keys(situation: Situation) -> set[str]:
    return {each.key for host in situation.plan().hosts for each in host.actions}


def words(situation: Situation, name: str, key: str) -> tuple[str, str]:
    found = action(situation, name, key)
    assert found is not None
    return found.what, found.why


def credentials(sha256: str = STORAGE["config_sha256"], mode: str = CREDENTIALS_MODE) -> str:
    return f"{sha256} {mode}"


@pytest.mark.parametrize("backend", [S3, DRIVE])
def test_credentials_are_written_for_the_worker_alone_and_once(backend: str) -> None:
    situation = Situation().stored(backend)
    short = STORAGE["config_sha256"][:8]
    what = f"write credentials {short} of fleet:training/chunks, for the worker alone"
    assert {words(situation, name, "credentials") for name in NAMES} == {(what, "not there")}
    assert not situation.applied().plan().changes


@pytest.mark.parametrize(
    "there",
    [
        credentials(sha256=64 * "0"),
        credentials(mode="0644 tailtrain:tailtrain"),
        credentials(mode="0600 root:root"),
    ],
)
def test_credentials_that_differ_or_are_open_to_others_are_written_again(there: str) -> None:
    situation = Situation().stored(S3).applied().on("judge", credentials=there)
    assert words(situation, "judge", "credentials")[1] == "differ, or their permissions do"
    assert [each.key for each in situation.plan().host("judge").actions] == ["credentials"]
    assert not any(situation.plan().host(name).actions for name in NAMES if name != "judge")


def test_new_credentials_restart_nobody() -> None:
    situation = Situation().stored(S3).applied(state="training", unit="active")
    situation.stored(S3, config_sha256=64 * "d")
    assert keys(situation) - {"watch", "aggregate", "model", "validate", "judge"} == {"credentials"}


def test_credentials_that_no_backend_needs_are_removed() -> None:
    situation = Situation().stored(S3).applied().stored_nowhere()
    assert words(situation, "judge", "credentials") == (
        "remove the storage's credentials",
        "no backend needs them",
    )
    assert not situation.applied().plan().changes


def test_the_certificates_of_a_backend_are_a_file_that_all_may_read() -> None:
    text = "-----BEGIN CERTIFICATE-----\n"
    situation = Situation().stored(S3, ca_text=text)
    [file] = [each for each in situation.plan().host("judge").files if each.path == layout.STORAGE_CA]
    assert (file.mode, file.group, file.after) == ("0644", "root", text)
    training = Situation().stored(S3).applied(state="training", unit="active").stored(S3, ca_text=text)
    assert words(training, "judge", "files")[0] == "write storage-ca.pem"
    assert not {"restart", "start"} & keys(training)


def test_the_primary_stands_for_the_upload() -> None:
    situation = Situation().stored(S3, uploads=PACKS)
    assert words(situation, PRIMARY, "upload") == (
        "upload 2 packs, 6.3 MB, to fleet:training/chunks",
        "not there yet",
    )
    assert [host.node.hostname for host in situation.plan().hosts if host.does("upload")] == [PRIMARY]
    assert situation.plan().storage_uploads == set(PACKS)


@pytest.mark.parametrize("uploads", [None, {}])
def test_nothing_is_uploaded_where_nothing_is_missing(uploads: dict[str, int] | None) -> None:
    assert "upload" not in keys(Situation().stored(S3, uploads=uploads))


def test_a_lost_pack_is_uploaded_although_no_host_lacks_anything() -> None:
    situation = Situation().stored(S3).applied().stored(S3, uploads={"a": 4_000_000})
    plan = situation.plan()
    assert [each.key for each in plan.host(PRIMARY).actions] == ["upload"]
    assert plan.host(PRIMARY).verdict == "upload"
    assert summary(document_of(plan)) == (
        "Plan: 1 host to stand for an upload, 5 unchanged; 1 pack (4.0 MB) to upload, no chunk to send,"
        " nothing to remove."
    )


def test_with_s3_every_chunk_is_fetched_in_one_wave() -> None:
    host = Situation().stored(S3).plan().host("judge")
    chunks, size = len(host.chunks), sum(chunk.bytes for chunk in host.chunks)
    [source] = host.sources
    assert (source.source, source.chunks, source.bytes) == ("fleet:training/chunks", chunks, size)
    what, why = words(Situation().stored(S3), "judge", "chunks")
    assert what.startswith(f"fetch {chunks} chunks, ")
    assert why.startswith("no natural data there yet; copies of natural for the other nodes; ")
    assert not host.does("copies")


def test_without_a_backend_own_shares_are_sent_and_copies_fetched_from_who_gets_them_first() -> None:
    host = Situation().plan().host("judge")
    first = [each for each in host.deliveries if each.wave == 1]
    later = [each for each in host.deliveries if each.wave == 2]
    assert words(Situation(), "judge", "chunks")[0].startswith(f"send {len(first)} chunks, ")
    assert words(Situation(), "judge", "copies")[0].startswith(f"fetch {len(later)} chunks, ")
    assert sum(each.chunks for each in host.sources) == len(host.chunks) == len(first) + len(later)


def test_a_host_that_joins_gets_its_share_from_here_and_copies_from_neighbours() -> None:
    situation = Situation().applied(state="training", unit="active").add(SEVENTH)
    host = situation.plan().host(SEVENTH.hostname)
    assert {each.wave for each in host.deliveries} == {1}
    sent = [each for each in host.deliveries if each.sent]
    assert all(each.why == "own shares" for each in sent)
    what, _ = words(situation, SEVENTH.hostname, "chunks")
    assert what.startswith(f"send {len(sent)} chunks, ")
    assert f"; fetch {len(host.deliveries) - len(sent)} chunks, " in what


def test_with_the_drive_each_chunk_leaves_it_once() -> None:
    plan = Situation().stored(DRIVE).plan()
    chunks = {chunk.sha256 for each in plan.datasets for chunk in (*each.train, *each.heldout)}
    fetched = [each for host in plan.hosts for each in host.sources if each.source == "fleet:training/chunks"]
    assert sum(each.chunks for each in fetched) == len(chunks)


def test_only_manifests_are_sent_where_only_they_are_missing() -> None:
    situation = Situation().applied().on("judge", manifests=frozenset())
    assert words(situation, "judge", "chunks") == ("send the manifests", "not there")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"active": "inactive"}, ("start the chunk server", "not running")),
        ({"active": "failed"}, ("start the chunk server", "not running")),
        ({"active": "inactive", "enabled": False}, ("start the chunk server", "not running")),
        (
            {"active": "active", "enabled": False},
            ("have the chunk server start with the host", "would not, after a boot"),
        ),
    ],
)
def test_a_chunk_server_that_does_not_run_is_started(
    state: dict[str, Any], expected: tuple[str, str]
) -> None:
    situation = Situation().applied().unit("judge", unit=layout.CHUNKS_UNIT, **state)
    assert words(situation, "judge", "serve") == expected
    assert [each.key for each in situation.plan().host("judge").actions] == ["serve"]


def test_chunk_servers_that_must_know_of_another_host_are_restarted() -> None:
    situation = Situation().applied().add(SEVENTH)
    assert words(situation, "judge", "serve") == ("restart the chunk server", "its unit changes")
    assert words(situation, SEVENTH.hostname, "serve") == ("start the chunk server", "not running")


def test_another_port_for_chunks_is_known_to_servers_and_workers() -> None:
    situation = Situation().applied(state="training", unit="active").with_settings(chunk_port=45_100)
    plan = situation.plan()
    assert all(host.does("serve") and host.does("restart") for host in plan.hosts)
    [unit] = [each for each in plan.host("judge").files if each.path.endswith(layout.CHUNKS_UNIT)]
    assert ":45100 " in unit.after


def test_more_copies_restart_no_worker() -> None:
    situation = Situation().applied(state="training", unit="active").with_settings(replicas=3)
    assert not {"restart", "start", "serve", "files"} & keys(situation)
    assert "chunks" in keys(situation)
    fewer = Situation().applied(state="training", unit="active").with_settings(replicas=1)
    assert not {"chunks", "copies"} & keys(fewer)
    released = [removal for host in fewer.plan().hosts for removal in host.removals]
    assert {removal.why for removal in released} == {"kept by other nodes now"}


def test_a_change_of_the_backend_is_a_restart_that_is_named() -> None:
    situation = Situation().applied(state="training", unit="active").stored(S3)
    assert words(situation, "judge", "restart") == (
        "restart the worker",
        "configuration, unit or code changed",
    )
    assert "chunks" not in keys(situation)
