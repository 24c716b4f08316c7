"""Where things are on a node."""

from __future__ import annotations

ACCOUNT = "tailtrain"
STATE_DIR = "/var/lib/tailtrain"
CHUNK_DIR = f"{STATE_DIR}/chunks"
MANIFEST_DIR = f"{STATE_DIR}/manifests"
WHEEL_DIR = f"{STATE_DIR}/wheels"
RUN_DIR = f"{STATE_DIR}/runs"
IDENTITY = f"{STATE_DIR}/identity.key"
PEER_ID = f"{STATE_DIR}/identity.id"
CONFIG_DIR = "/etc/tailtrain"
CONFIG = f"{CONFIG_DIR}/worker.json"
STORAGE_CONFIG = f"{CONFIG_DIR}/storage.conf"
STORAGE_CA = f"{CONFIG_DIR}/storage-ca.pem"
SERF_CONFIG = f"{CONFIG_DIR}/serf.json"
SERF_KEYRING = f"{CONFIG_DIR}/serf.keyring"
SERF_SNAPSHOT = f"{STATE_DIR}/serf.snapshot"
SHARDED_CONFIG = f"{CONFIG_DIR}/sharded.json"
TOPOLOGY = f"{CONFIG_DIR}/topology.json"
MEASURED = f"{STATE_DIR}/measured.json"
RECEIPT = f"{STATE_DIR}/receipt.json"
UNIT_DIR = "/etc/systemd/system"
WORKER_UNIT = "tailtrain-worker.service"
VALIDATE_UNIT = "tailtrain-validate.service"
CHUNKS_UNIT = "tailtrain-chunks.service"
SERF_UNIT = "tailtrain-serf.service"
UNITS = (WORKER_UNIT, VALIDATE_UNIT, CHUNKS_UNIT, SERF_UNIT)
"""All that a host of ours may have; `units` are those that it should have."""
DEBIAN_SERF_UNIT = "serf.service"
"""Comes with Debian's package and runs an agent without a key on all addresses: it is masked, always."""
PROGRAM_DIR = "/opt/tailtrain"
ENVIRONMENT_DIR = f"{PROGRAM_DIR}/env"
CODE_DIR = f"{PROGRAM_DIR}/code"
LAB_MARKER = "/etc/tailtrain-lab.json"

# Debian packages that a node needs: venv to build the worker's environment, runuser and systemd are base.
PACKAGES = ("python3", "python3-venv", "ca-certificates")
SERF_PACKAGE, SERF_PROGRAM = "serf", "/usr/bin/serf"
"""What a node needs besides where Serf holds the membership."""
SECRET_MODE = f"0600 {ACCOUNT}:{ACCOUNT}"
"""How files lie on a host whose content is the worker's business alone: mode and owners."""
PYTHON = "3.11"


def units(*, gossips: bool) -> tuple[str, ...]:
    """The units that a host should have: Serf's only where it holds the membership."""
    return UNITS if gossips else tuple(unit for unit in UNITS if unit != SERF_UNIT)


def environment(lock_id: str) -> str:
    """The folder of the worker environment built from the lock with this id."""
    return f"{ENVIRONMENT_DIR}/{lock_id}"


def rclone(lock_id: str) -> str:
    """rclone, as it comes with the environment built from this lock."""
    return f"{environment(lock_id)}/bin/rclone"


def code(code_id: str) -> str:
    """The folder that holds the worker's code with this id."""
    return f"{CODE_DIR}/{code_id}"


def run(run_id: str) -> str:
    """The folder of a run."""
    return f"{RUN_DIR}/{run_id}"
