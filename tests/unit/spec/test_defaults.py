import json
from pathlib import Path

from tailtrain.spec import from_lean_json, lean_default_config, to_lean_json
from tailtrain.spec.defaults import QFOX, calculate_assignment
from tailtrain.spec.fixed_point import ZERO

# Written by hand from the specification; the product has no part in it.
GOLDEN = Path(__file__).with_name("lean_default_config.json")


def test_the_default_configuration_is_the_specification_s_to_the_letter() -> None:
    written = to_lean_json(lean_default_config())
    golden = json.loads(GOLDEN.read_text())
    assert json.loads(written) == golden
    assert written == json.dumps(golden, separators=(",", ":")), "fields stand in the specification's order"


def test_the_specification_s_json_is_read_back() -> None:
    assert from_lean_json(GOLDEN.read_text()) == lean_default_config()
    assert from_lean_json(GOLDEN.read_bytes()) == lean_default_config()


def test_the_specification_s_floors_lose_records_and_weight() -> None:
    assignments = [assignment for _, assignment in lean_default_config().node_assignments]
    assert sum(assignment.natural_language_shard_size for assignment in assignments) == 65_315
    assert sum(assignment.coding_language_shard_size for assignment in assignments) == 2_773
    assert sum((assignment.weight for assignment in assignments), start=ZERO).raw == 65_532


def test_without_any_cores_the_specification_assigns_nothing() -> None:
    assignment = calculate_assignment(QFOX, 0, 65_318, 2_776)
    assert assignment.weight == ZERO
    assert assignment.natural_language_shard_size == assignment.coding_language_shard_size == 0
