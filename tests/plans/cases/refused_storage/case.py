"""More data than the host's declared storage."""

from tests.plans.situations import Situation, dataset

SITUATION = Situation(datasets=(dataset("natural", "prose.parquet", (1_000_000,) * 40, (9,)),)).declare(
    "judge", storage_gb=1
)
