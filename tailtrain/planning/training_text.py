"""The group data of a new project: what to train, with every setting named, as text that runs as it is."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tailtrain.planning.engine_settings import EngineSettings
from tailtrain.planning.settings import LoopSettings, ModelSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

DEMO_FOLDER = ".tailtrain/demo"
"""Where `tailtrain dataset demo` puts the data sets that this text names."""

_WORDS = '''"""What to train, and how. Each name here is a setting of tailtrain; an unknown one is an error.

What stands behind a # is the default. `tailtrain plan` shows what becomes of it.
"""

# How the work is spread, in the specification's words; docs/engines.md says what they mean.
distribution_strategy = "dataParallel"  # or "pipelineParallel", "modelParallel"
coordination_protocol = "eneGossip"  # or "decentralized", "centralized"
storage_backend = "local"
# storage = {{}}  # for the other backends: {{"remote": "name:folder"}}, a remote of rclone and a folder there
resource_allocation = "swarm_topology_optimizer"  # or "declared_cores"
load_balancing = "health_weighted"  # or "static"
# data_sharding = True  # each node trains on its own share of the data
# fault_tolerance = True  # goes on when a node is lost

# One entry for each domain: parquet files with a `text` or `content` column. These two are made by
# `tailtrain dataset demo {demo}`; `tailtrain dataset build` makes yours.
datasets = {{
    "natural": "{demo}/prose.parquet",
    "coding": "{demo}/code.parquet",
}}
# heldout_fraction = 0.02  # of the records: never trained on, every node is judged by them

# A byte-level transformer; the sizes decide its parameters and its memory.
model = {{
{model}
}}

# Every node trains for the same seconds each round, at its own speed; then weights are averaged in proportion
# to the tokens trained. The run ends when the fleet has trained `target_tokens`.
# Rounds of 0 seconds are as long as the optimizer finds best.
training = {{
{training}
}}
# How the engines work. What is left to the optimizer is `all_each` 0 and `compression` "auto".
engine = {{
{engine}
}}
# validation_bytes_per_domain = 65_536  # how much held-out text each node is judged by
# worker_port = 45_001  # on the tailnet address; the tailnet's policy must let nodes reach it
# chunk_port = 45_002  # the same, for fetching chunks from each other
# replicas = 2  # how many nodes have each chunk; above 1 nothing is lost with a node
# keep_runs = 2  # finished runs that stay on the nodes

# Where nodes get the worker's Python packages: a folder of wheels here, which is sent to them, or an index
# that has torch's CPU build. Without either they install torch's CUDA build from the ordinary index: it is
# large, and works on CPUs as well.
# wheels = None
# package_index = None
'''


def training_text() -> str:
    """The text of group_data/all.py."""
    sections = {"model": ModelSettings, "training": LoopSettings, "engine": EngineSettings}
    lines = {name: "\n".join(_lines(section)) for name, section in sections.items()}
    return _WORDS.format(demo=DEMO_FOLDER, **lines)


def _lines(section: type[ModelSettings | LoopSettings | EngineSettings]) -> Iterator[str]:
    """The settings of a section with their defaults, as comments."""
    for setting in fields(section):
        yield f'    # "{setting.name}": {_value(setting.default)},'


def _value(default: object) -> str:
    """A default as Python reads it."""
    if isinstance(default, int) and not isinstance(default, bool):
        return f"{default:_}"
    return f'"{default}"' if isinstance(default, str) else repr(default)
