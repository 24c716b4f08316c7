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

from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import PYTHON_CODES

from tailtrain.errors import DeclarationError, TailtrainError
from tailtrain.fleet.connect import declared_state
from tailtrain.fleet.declared import declared_fleet


def reply(folder: str, override: dict[str, Any]) -> dict[str, Any]:
    """What the inventory in this folder declares."""
    os.chdir(folder)
    PYTHON_CODES.clear()
    try:
        if override:
            inventory = make_inventory("inventory.py", override_data=override, cwd=folder)
        else:
            inventory = declared_state(Path("inventory.py")).inventory
        declared = declared_fleet(inventory)
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
        "seed": declared.settings.loop.seed,
        "protocol": declared.settings.training.coordination_protocol.value,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(reply(**json.loads(line))), flush=True)
