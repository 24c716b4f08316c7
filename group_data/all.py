"""What to train, and how. Each name here is a setting of tailtrain; an unknown one is an error.

How the work is spread: the words are the specification's, docs/engines.md says what they mean here.
"""

distribution_strategy = "dataParallel"
coordination_protocol = "eneGossip"  # or "decentralized", "centralized"
storage_backend = "local"  # this machine sends; "s3" and "googleDriveTopological" use `storage`, see below
resource_allocation = "swarm_topology_optimizer"  # or "declared_cores"
load_balancing = "health_weighted"  # or "static"
data_sharding = True
fault_tolerance = True

# One entry for each domain: parquet files with a `text` or `content` column, as
# `tailtrain dataset build` makes them. Records and bytes are read from the file.
datasets = {
    "natural": ".tailtrain/demo/prose.parquet",
    "coding": ".tailtrain/demo/code.parquet",
}
heldout_fraction = 0.02

# How many nodes have each chunk. Above 1, nothing is lost with a node: the others train its records.
replicas = 2

# Where storage_backend "s3" or "googleDriveTopological" keeps the data: a remote of rclone's configuration
# and a folder there (docs/storage.md). Its credentials are in rclone's own file, or in the environment.
# As in: storage = {"remote": "name:folder", "http_proxy": None, "ca_certificate": None}

# A byte-level transformer; the sizes decide its parameters and its memory.
model = {"layers": 4, "width": 128, "heads": 4, "context": 128}

# Every node trains for the same seconds each round, at its own speed; then weights are averaged in
# proportion to the tokens trained. The run ends when the fleet has trained `target_tokens`.
training = {
    "target_tokens": 1_000_000,
    "round_seconds": 12.0,
    "batch_size": 8,
    "learning_rate": 0.003,
    "seed": 17,
}
# More settings of `training`, and those of `engine`, with their defaults: docs/engines.md.
validation_bytes_per_domain = 32_768

# For workers, and for fetching chunks: on the tailnet address, where the policy must let nodes reach them.
worker_port = 45_001
chunk_port = 45_002

# How many runs a host keeps besides the one at hand; older ones go at the end of a deploy.
keep_runs = 2

# Where nodes get the worker's Python packages: a folder of wheels here, which is sent to them, or an index
# that has torch's CPU build. Without either they install torch's CUDA build from the ordinary index: it is
# large, and works on CPUs as well.
wheels = None
package_index = None
