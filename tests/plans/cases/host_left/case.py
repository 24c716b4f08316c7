"""A line less in the inventory, mid-run: the worker stops, its records go to others, the host is cleaned."""

from tailtrain.planning.departed import DepartedFound
from tailtrain.planning.receipt import Login
from tests.plans.situations import SEVENTH, Situation

SITUATION = Situation().add(SEVENTH).applied(state="training", round_number=5, unit="active")
RUN = SITUATION.answer("qfox").run.run_id
SITUATION.remove(SEVENTH.hostname)
SITUATION.departed = (DepartedFound(SEVENTH.hostname, Login(), working=True, run=RUN, bytes=1_234_567_890),)
