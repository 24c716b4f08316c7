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
RECEIPT = f"{STATE_DIR}/receipt.json"
UNIT_DIR = "/etc/systemd/system"
WORKER_UNIT = "tailtrain-worker.service"
VALIDATE_UNIT = "tailtrain-validate.service"
ENVIRONMENT_DIR = "/opt/tailtrain/env"
CODE_DIR = "/opt/tailtrain/code"
LAB_MARKER = "/etc/tailtrain-lab.json"

# Debian packages that a node needs: venv to build the worker's environment, runuser and systemd are base.
PACKAGES = ("python3", "python3-venv", "ca-certificates")
PYTHON = "3.11"


def environment(lock_id: str) -> str:
    """The folder of the worker environment built from the lock with this id."""
    return f"{ENVIRONMENT_DIR}/{lock_id}"


def code(code_id: str) -> str:
    """The folder that holds the worker's code with this id."""
    return f"{CODE_DIR}/{code_id}"


def run(run_id: str) -> str:
    """The folder of a run."""
    return f"{RUN_DIR}/{run_id}"
