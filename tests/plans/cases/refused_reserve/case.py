"""A host keeps more for itself than was found there."""

from tailtrain.spec import NodeReserve
from tests.plans.situations import Situation

SITUATION = Situation(reserves={"architect": NodeReserve(cores=4)}).hardware("architect", cores=4)
