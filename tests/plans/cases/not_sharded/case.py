"""Every node has all the data."""

from tests.plans.situations import Situation

SITUATION = Situation().with_settings(data_sharding=False)
