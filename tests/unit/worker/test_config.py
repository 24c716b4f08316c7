"""worker.json: read as it is meant, refused by name where it is not."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tailtrain.errors import WorkerError
from tailtrain.worker.config import load_config
from tailtrain.worker.data_config import RemoteConfig, RowRange, Span

CHUNK, OTHER, MANIFEST = "a" * 64, "b" * 64, "c" * 64
PEER_ID = "QmTqkQSVm5SBvkp2AE2938T8h6BdYNpoPvZsq2mqaxXLhL"
GOOD: dict[str, Any] = {
    "run_id": "0123456789abcdef",
    "node": "qfox",
    "role": "primary",
    "seed": 17,
    "device": "cpu",
    "threads": 1,
    "usable_cores": 0.89,
    "state_dir": "/var/lib/tailtrain",
    "model": {"layers": 4, "width": 128, "heads": 4, "context": 128},
    "training": {
        "batch_size": 8,
        "learning_rate": 0.003,
        "weight_decay": 0.1,
        "warmup_steps": 20,
        "round_seconds": 12.0,
        "averaging_timeout_seconds": 30.0,
        "target_tokens": 2000000,
        "outer_learning_rate": 1.0,
        "outer_momentum": 0.0,
        "start_timeout_seconds": 180.0,
        "keep_checkpoints": 2,
        "checkpoint_rounds": 1,
        "steps_per_round": 0,
        "health_weighted": True,
        "fault_tolerance": True,
    },
    "coordination": {
        "protocol": "decentralized",
        "address": "100.64.0.2",
        "port": 45001,
        "quorum": 2,
        "all_each": 1,
        "compression": "none",
        "reducers": {},
        "gossip": None,
        "made_of": {"code": "c0de", "data": "da7a", "plan": "91a9"},
        "peers": [
            {
                "node": "architect",
                "role": "compute",
                "address": "100.64.0.3",
                "port": 45001,
                "peer_id": PEER_ID,
            }
        ],
    },
    "data": [
        {
            "domain": "natural",
            "manifest": MANIFEST,
            "ranges": [[CHUNK, 0, 120]],
            "others": {"architect": [[0, 120, 4, 7], [6, 0, 6, 20]]},
            "heldout": [OTHER],
        },
        {"domain": "code", "manifest": "d" * 64, "ranges": [], "others": {}, "heldout": []},
    ],
    "storage": {
        "chunk_port": 45002,
        "rclone": "/opt/tailtrain/env/1/bin/rclone",
        "remote": {
            "path": "fleet:bucket/folder",
            "config": "/etc/tailtrain/storage.conf",
            "flags": ["--http-proxy", "http://10.0.0.1:3128"],
        },
    },
    "validation": {"bytes_per_domain": 65536},
}


def _write(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "worker.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def _changed(path: str, value: Any) -> dict[str, Any]:
    """The good configuration with one field replaced (or removed, where the value is `...`)."""
    config = copy.deepcopy(GOOD)
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    place: Any = config
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return config


def test_a_good_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = _write(tmp_path, GOOD)
    config = load_config(path)
    assert config.is_primary
    assert not config.centralized
    assert config.nodes == ("architect", "qfox")
    assert config.run_dir == Path("/var/lib/tailtrain/runs/0123456789abcdef")
    assert config.data[0].ranges == (RowRange(CHUNK, 0, 120),)
    assert config.data[0].others == {"architect": (Span(0, 120, 4, 7), Span(6, 0, 6, 20))}
    assert config.sharded
    assert config.storage.remote == RemoteConfig(
        "fleet:bucket/folder",
        Path("/etc/tailtrain/storage.conf"),
        ("--http-proxy", "http://10.0.0.1:3128"),
    )
    assert config.coordination.peers[0].peer_id == PEER_ID
    assert config.training.round_seconds == 12.0
    assert config.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("run_id", "XYZ", r"worker\.json: run_id: .*found \"XYZ\", expected 16 hexadecimal digits"),
        ("node", "../etc", r"worker\.json: node: .*expected a host name"),
        ("role", "boss", r"worker\.json: role: .*expected primary or compute"),
        ("seed", -1, r"worker\.json: seed: .*found -1"),
        ("seed", True, r"worker\.json: seed: .*found true"),
        ("threads", 0, r"worker\.json: threads: .*whole number from 1"),
        ("usable_cores", 0, r"worker\.json: usable_cores: .*above 0"),
        ("usable_cores", "much", r"worker\.json: usable_cores"),
        ("state_dir", "here", r"worker\.json: state_dir: .*absolute path"),
        ("device", "tpu", r"worker\.json: device: .*cpu or cuda"),
        ("surprise", 1, r"worker\.json: surprise: nobody knows this setting"),
        ("model", [], r"worker\.json: model: this should be an object"),
        ("model/heads", 3, r"worker\.json: model\.heads: .*divisor of the width 128"),
        ("model/context", ..., r"worker\.json: model\.context: a setting is missing"),
        ("model/depth", 4, r"worker\.json: model\.depth: nobody knows"),
        ("training/outer_momentum", 1.0, r"training\.outer_momentum: .*below 1"),
        ("training/learning_rate", 1e999, r"training\.learning_rate"),
        ("training/fault_tolerance", 1, r"training\.fault_tolerance: .*true or false"),
        ("training/keep_checkpoints", 1, r"training\.keep_checkpoints: .*from 2"),
        ("training/averaging_timeout_seconds", 1.0, r"training\.averaging_timeout_seconds"),
        (
            "coordination/protocol",
            "gossip",
            r"coordination\.protocol: .*decentralized or centralized or eneGossip",
        ),
        ("coordination/address", "0.0.0.0", r"coordination\.address: .*not all addresses"),  # noqa: S104
        ("coordination/address", "qfox", r"coordination\.address: .*IPv4"),
        ("coordination/port", 70000, r"coordination\.port: .*from 1 to 65535"),
        ("coordination/quorum", 3, r"coordination\.quorum: .*at most 2"),
        ("coordination/reducers", {"stranger": 1.0}, r"coordination\.reducers: .*stranger.*nodes of the run"),
        ("coordination/reducers", {"qfox": 0.4}, r"coordination\.reducers: .*add up to 1"),
        ("coordination/peers/0/peer_id", "0OIl", r"coordination\.peers\[0\]\.peer_id: .*peer id"),
        ("coordination/peers/0/node", "qfox", r"coordination\.peers: .*each only once"),
        ("coordination/peers/0/role", "primary", r"coordination\.peers: .*exactly one primary"),
        ("role", "compute", r"coordination\.peers: .*exactly one primary"),
        ("data", [], r"data: .*at least one domain"),
        ("data/1/domain", "natural", r"data: .*each only once"),
        ("data/0/ranges/0", [CHUNK, 5, 5], r"data\[0\]\.ranges\[0\]: .*row after the last"),
        ("data/0/ranges/0", ["short", 0, 5], r"data\[0\]\.ranges\[0\]"),
        ("data/0/heldout/0", "short", r"data\[0\]\.heldout\[0\]: .*sha256"),
        ("data/0/heldout/0", CHUNK, r"data: .*no chunk both trained on and held out"),
        ("data/1/heldout", [CHUNK], r"data: .*no chunk both trained on and held out"),
        ("data/0/others", ..., r"data\[0\]\.others: a setting is missing"),
        ("data/0/others", [], r"data\[0\]\.others: this should be an object"),
        ("data/0/others/stranger", [], r"data\[0\]\.others: .*\"stranger\".*coordination\.peers"),
        ("data/0/others/architect", 5, r"data\[0\]\.others\.architect: .*a list"),
        ("data/0/others/architect/0", [0, 0, 0], r"others\.architect\[0\]: .*first chunk"),
        ("data/0/others/architect/0", [0, 5, 0, 5], r"others\.architect\[0\]"),
        ("data/0/others/architect/0", [1, 0, 0, 5], r"others\.architect\[0\]"),
        ("data/0/others/architect/0", [0, False, 1, 5], r"others\.architect\[0\]"),
        ("storage", ..., r"storage: a setting is missing"),
        ("storage/chunk_port", 0, r"storage\.chunk_port: .*from 1 to 65535"),
        ("storage/rclone", "rclone", r"storage\.rclone: .*absolute path"),
        ("storage/remote", ..., r"storage\.remote: a setting is missing"),
        ("storage/remote", [], r"storage\.remote: this should be an object"),
        ("storage/remote/path", "bucket", r"storage\.remote\.path: .*name:folder"),
        ("storage/remote/config", "x.conf", r"storage\.remote\.config: .*absolute path"),
        ("storage/remote/flags", [5], r"storage\.remote\.flags\[0\]: .*option of rclone"),
        ("storage/remote/more", 1, r"storage\.remote\.more: nobody knows"),
        ("storage/more", 1, r"storage\.more: nobody knows"),
        ("validation/bytes_per_domain", 0, r"validation\.bytes_per_domain"),
        ("validation/more", 0, r"validation\.more: nobody knows"),
    ],
)
def test_each_bad_field_is_named(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        load_config(_write(tmp_path, _changed(path, value)))


def test_there_may_be_no_storage_backend(tmp_path: Path) -> None:
    assert load_config(_write(tmp_path, _changed("storage/remote", None))).storage.remote is None


@pytest.mark.parametrize(("content", "message"), [("{", "not JSON"), ("[1]", "should be an object")])
def test_what_is_not_a_configuration_is_said_to_be_none(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        load_config(_write(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"worker\.json: cannot read"):
        load_config(tmp_path / "worker.json")
