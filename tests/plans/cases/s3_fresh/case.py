"""Six hosts with nothing on them, and a bucket that is empty."""

from tests.plans.situations import Situation

SITUATION = Situation().stored(
    "s3", uploads={"5e1f0000": 4_290_000, "77aa0000": 1_140_000, "c0de0000": 912_300}
)
