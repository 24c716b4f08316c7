"""What a model needs of a host's memory, against workers that were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning.memory import memory_needed, parameters, require_memory
from tailtrain.planning.settings import LoopSettings, ModelSettings

MIB = 2**20
OUTER = LoopSettings(outer_learning_rate=0.7, outer_momentum=0.9)

# layers, width, heads, context, batch size, loop; then the peak of anonymous and shared memory of all of a
# worker's processes over three rounds, in MiB: tailtrain's worker with torch 2.13, one thread, x86_64.
MEASURED = [
    ((1, 32, 2, 32), 1, LoopSettings(), 307),
    ((4, 128, 4, 128), 8, LoopSettings(), 441),
    ((2, 64, 2, 2048), 4, LoopSettings(), 470),
    ((8, 128, 4, 256), 32, LoopSettings(), 1183),
    ((4, 256, 4, 512), 16, LoopSettings(), 1374),
    ((4, 512, 4, 64), 1, LoopSettings(), 1206),
    ((4, 512, 4, 64), 1, OUTER, 1431),
    ((6, 384, 6, 256), 16, LoopSettings(), 1731),
    ((8, 640, 8, 64), 1, LoopSettings(), 3086),
]


@pytest.mark.parametrize(("sizes", "batch_size", "loop", "measured"), MEASURED)
def test_the_estimate_is_near_what_workers_needed(
    sizes: tuple[int, int, int, int], batch_size: int, loop: LoopSettings, measured: int
) -> None:
    needed = memory_needed(ModelSettings(*sizes), replace(loop, batch_size=batch_size)) / MIB
    assert needed == pytest.approx(measured, rel=0.12)


def test_parameters_are_counted_exactly() -> None:
    # What a run of the demo reports.
    assert parameters(ModelSettings(4, 128, 4, 128)) == 836_736


def test_a_model_that_does_not_fit_is_refused_by_name() -> None:
    model = ModelSettings(layers=256, width=16_384, heads=4, context=65_536)
    with pytest.raises(DeclarationError) as caught:
        require_memory("judge", 8 * 2**30, model, LoopSettings())
    text = str(caught.value)
    assert text.startswith(
        "judge: ram_gb: its memory cannot hold the training (found 8.0 GiB for it, expected"
    )
    assert "batches of 8 x 65536 bytes" in text
    require_memory("judge", 8 * 2**30, ModelSettings(), LoopSettings())


def test_on_a_gpu_batches_are_not_counted() -> None:
    model, loop = ModelSettings(8, 512, 8, 1024), LoopSettings(batch_size=64)
    assert memory_needed(model, loop, device="cuda") < memory_needed(model, loop) / 10
    assert memory_needed(model, replace(loop, batch_size=1), device="cuda") == memory_needed(
        model, loop, device="cuda"
    )
