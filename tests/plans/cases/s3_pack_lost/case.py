"""All hosts have what they need; somebody removed a pack from the bucket."""

from tests.plans.situations import Situation

SITUATION = Situation().stored("s3").applied().stored("s3", uploads={"5e1f0000": 4_290_000})
