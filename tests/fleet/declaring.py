"""Reads inventories as pyinfra does, one JSON request a line.

A process of its own, since pyinfra's command line has gevent replace the blocking calls of whoever imports
it. A request names the folder with `inventory.py` and `group_data/`, and what `--data` overrides; the reply
is what is declared, or the refusal.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyinfra.api import State
from pyinfra.context import ctx_state
from pyinfra_cli.util import PYTHON_CODES

from tailtrain.errors import DeclarationError, TailtrainError
from tailtrain.fleet.declared import declared_fleet
from tailtrain.fleet.inventory_file import read_inventory


def reply(folder: str, override: dict[str, Any]) -> dict[str, Any]:
    """What the inventory in this folder declares."""
    os.chdir(folder)
    PYTHON_CODES.clear()
    ctx_state.set(State())
    try:
        declared = declared_fleet(read_inventory(Path("inventory.py"), Path(folder), override=override))
    except TailtrainError as error:
        return {
            "refused": str(error),
            "kind": type(error).__name__,
            "host": error.host,
            "field": error.field,
            "declaration": isinstance(error, DeclarationError),
        }
    return {
        "nodes": [[node.hostname, node.role.value, node.cores] for node in declared.nodes],
        "reserves": {name: [kept.cores, kept.ram_gb, kept.nice] for name, kept in declared.reserves.items()},
        "files": [file for _, file in declared.settings.datasets] + [declared.settings.wheels],
        "seed": declared.settings.loop.seed,
        "protocol": declared.settings.training.coordination_protocol.value,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(reply(**json.loads(line))), flush=True)
