"""The model, its optimiser and its weights as one vector."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tailtrain.errors import CheckpointError
from tailtrain.worker.config import ModelConfig, TrainingConfig
from tailtrain.worker.model import build_model, next_byte_loss
from tailtrain.worker.optimizer import AdamW, outer_step
from tailtrain.worker.validate import loss_per_byte, unigram_loss
from tailtrain.worker.weights import FlatWeights, weights_sha256

SMALL = ModelConfig(layers=2, width=16, heads=2, context=12)
TRAINING = TrainingConfig(
    batch_size=4, learning_rate=0.01, weight_decay=0.1, warmup_steps=0, round_seconds=1.0,
    averaging_timeout_seconds=5.0, target_tokens=1000, outer_learning_rate=1.0, outer_momentum=0.0,
    start_timeout_seconds=5.0, keep_checkpoints=2, fault_tolerance=True,
    checkpoint_rounds=1, steps_per_round=0, health_weighted=True,
)  # fmt: skip
CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]


def test_first_weights_follow_from_the_seed() -> None:
    digests = [weights_sha256(FlatWeights(build_model(SMALL, seed), CPU).values) for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_an_untrained_model_knows_nothing() -> None:
    window = torch.randint(0, 256, (8, 13), generator=torch.Generator().manual_seed(1))
    assert float(next_byte_loss(build_model(SMALL, 1), window).detach()) == pytest.approx(
        math.log(256), abs=0.05
    )


def test_no_position_sees_what_comes_after_it() -> None:
    model = build_model(SMALL, 1)
    one = torch.randint(0, 256, (1, 12), generator=torch.Generator().manual_seed(1))
    two = one.clone()
    two[0, 8:] = 65
    with torch.no_grad():
        torch.testing.assert_close(model(one)[0, :8], model(two)[0, :8])


def test_the_models_tensors_are_views_of_one_vector() -> None:
    model = build_model(SMALL, 1)
    flat = FlatWeights(model, CPU)
    next_byte_loss(model, torch.ones(2, 13, dtype=torch.long)).backward()
    assert flat.gradients.any()
    with torch.no_grad():
        flat.values.zero_()
    assert all(not parameter.any() for parameter in model.parameters())


def test_weights_survive_a_file_and_another_models_are_refused() -> None:
    flat = FlatWeights(build_model(SMALL, 1), CPU)
    content = flat.to_bytes(flat.values)
    assert torch.equal(flat.from_bytes(content), flat.values)
    wider = FlatWeights(build_model(dataclasses.replace(SMALL, width=32), 1), CPU)
    with pytest.raises(CheckpointError, match="another model"):
        wider.from_bytes(content)
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        flat.from_bytes(content[:-3])
    with pytest.raises(CheckpointError, match="not finite"):
        flat.from_bytes(flat.to_bytes(flat.values * float("nan")))


def test_the_update_is_adamw() -> None:
    """Against PyTorch's own, with the same clipping, for a few steps."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(50, generator=generator)
    theirs = torch.nn.Parameter(values.clone())
    reference = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    mine = AdamW(values, decayed=50, config=TRAINING)
    for _ in range(5):
        gradients = torch.randn(50, generator=generator)
        theirs.grad = gradients.clone()
        torch.nn.utils.clip_grad_norm_([theirs], 1.0)
        reference.step()
        mine.update(values, gradients, progress=0.0)
    torch.testing.assert_close(values, theirs.detach(), atol=1e-6, rtol=1e-5)


def test_the_learning_rate_warms_up_and_falls_to_a_tenth() -> None:
    optimizer = AdamW(torch.zeros(2), 2, dataclasses.replace(TRAINING, warmup_steps=10))
    optimizer.step = 5
    assert optimizer.learning_rate(0.0) == pytest.approx(0.005)
    optimizer.step = 20
    assert optimizer.learning_rate(0.5) == pytest.approx(0.0055)
    assert optimizer.learning_rate(1.5) == pytest.approx(0.001)


def test_the_outer_step_is_nesterov_sgd() -> None:
    base = torch.linspace(-1, 1, 20)
    theirs = torch.nn.Parameter(base.clone())
    reference = torch.optim.SGD([theirs], lr=0.7, momentum=0.9, nesterov=True)
    momentum = torch.zeros(20)
    for step in range(4):
        mean = base * 0.9 + 0.01 * step
        theirs.grad = theirs.detach() - mean
        reference.step()
        base = outer_step(base, mean, momentum, rate=0.7, decay=0.9)
        torch.testing.assert_close(base, theirs.detach())


def test_the_plain_outer_step_is_the_mean_to_the_bit() -> None:
    mean = torch.randn(100, generator=torch.Generator().manual_seed(1))
    assert torch.equal(outer_step(torch.zeros(100), mean, torch.zeros(100), rate=1.0, decay=0.0), mean)


def test_loss_per_byte_counts_each_byte_once() -> None:
    """A model without layers' help gives about ln 256 for each byte, whatever the records' lengths."""
    records = [b"a", b"hello", b"x" * 100]
    loss = loss_per_byte(build_model(SMALL, 1).eval(), records, SMALL.context, CPU)
    assert loss == pytest.approx(math.log(256), abs=0.2)


def test_the_unigram_baseline_is_smoothed_by_one() -> None:
    counts = [0] * 256
    counts[ord("a")] = 744
    assert unigram_loss(counts, [b"a"]) == pytest.approx(-math.log(745 / 1000))
    assert unigram_loss(counts, [b"b", b"b"]) == pytest.approx(-math.log(1 / 1000))


def test_training_does_not_import_the_compiler() -> None:
    """torch._dynamo costs seconds of a full core; nothing on the way to a training step may import it."""
    script = (
        "import sys, torch\n"
        "from tailtrain.worker.config import ModelConfig\n"
        "from tailtrain.worker.model import build_model, next_byte_loss\n"
        "import tailtrain.worker.rounds, tailtrain.worker.node_state\n"
        "model = build_model(ModelConfig(1, 8, 1, 8), 1)\n"
        "next_byte_loss(model, torch.ones(1, 9, dtype=torch.long)).backward()\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
