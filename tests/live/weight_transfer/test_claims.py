"""Claims of a preserved function are right on architectures of many families."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from tests.support.architectures import FAMILIES  # noqa: E402
from tests.support.transfers import IMAGES, WORDS, error, randomise  # noqa: E402
from wattkeeper.live import transfer  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.report import Heads  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

LIMIT = 1e-8
"""Largest relative error of a preserved function in double precision."""


def make(name: str, size: tuple[Any, ...], seed: int) -> nn.Module:
    return randomise(FAMILIES[name].make(*size), np.random.default_rng(seed))


def count_claims(name: str, pairs: Iterable[tuple[Any, ...]]) -> int:
    """Functions that are claimed to be preserved between sizes, each claim checked in eval mode.

    `test_output_that_only_train_mode_has` says why in eval mode alone.
    """
    family, kept = FAMILIES[name], 0
    inputs = WORDS[:2] if family.is_text else IMAGES[:2, :, ::2, ::2].double()
    if name == "vision transformer":
        inputs = IMAGES[:2].double()
    for old, new in pairs:
        parent, child = make(name, old, 1), make(name, new, 2)
        report = grow(trace(parent, inputs, "parent"), trace(child, inputs, "child"))
        if report.preserved_in_eval:
            kept += 1
            assert error(parent, child, inputs, train=False) < LIMIT, f"{old}, {new}\n{report}"
    return kept


@pytest.mark.parametrize("name", FAMILIES)
def test_claims_between_two_sizes_are_true(name: str) -> None:
    first, second = FAMILIES[name].sizes[:2]
    assert count_claims(name, [(first, first), (first, second), (second, first)]) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_claims_are_true_without_running_the_models(name: str) -> None:
    family = FAMILIES[name]
    kept = count_claims(name, itertools.product(family.sizes, repeat=2))
    assert kept >= family.kept, "fewer functions are known to be preserved than before"


def test_output_that_only_train_mode_has() -> None:
    """The forward of eval mode is what is traced; running both shows what train mode has."""
    one, two = FAMILIES["inception with output aside"].sizes
    parent, child = (make("inception with output aside", size, 1) for size in (one, two))
    report = transfer(parent, child, IMAGES.double())
    assert report.preserved_in_eval
    assert not report.preserved_in_train
    assert any("other shapes" in reason for reason in report.lost_in_train)


def test_stochastic_depth_and_dropout_do_not_hide_a_preserved_function() -> None:
    parent, child = (make("efficientnet", (8, 1, 0.5), seed) for seed in (1, 2))
    assert transfer(parent, child, IMAGES.double()).preserved_in_train


class Mean(nn.Module):
    """A layer whose forward a number in the module changes, which no tensor shows."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.linear = factor, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        return y * self.factor if self.training else y


@pytest.mark.parametrize("inputs", [torch.zeros(2, 4), torch.zeros(2, 4, device="meta")])
def test_constant_inputs_are_varied_in_the_check(inputs: Tensor) -> None:
    parent, child = Mean(1), Mean(1 + 1e-2)
    nn.init.zeros_(parent.linear.bias)
    before = {name: value.clone() for name, value in parent.state_dict().items()}
    report = transfer(parent, child, inputs)
    assert report.preserved_in_eval
    (reason,) = report.lost_in_train
    assert "outputs differ by 0.01" in reason
    assert all(torch.equal(before[name], value) for name, value in parent.state_dict().items())
    assert child.training


def test_claim_that_cannot_be_checked_is_withdrawn() -> None:
    class Alone(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if not x.is_meta:
                raise RuntimeError("needs a device that is not here")
            return super().forward(x)

    report = transfer(Alone(4, 3), Alone(4, 3), torch.ones(2, 4))
    assert report.coverage == 1
    (reason,) = report.lost_in_eval
    assert "could not be checked" in reason
    assert "not here" in reason


def test_check_leaves_state_and_random_numbers_alone() -> None:
    parent, child = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert transfer(parent, child, torch.randn(1, 4)).preserved_in_train
    torch.manual_seed(5)
    transfer(parent, child, torch.ones(1, 4))
    assert torch.equal(torch.rand(3), expected)
    assert child.state_dict()["num_batches_tracked"] == 0


def body(kind: str, width: int = 8) -> list[nn.Module]:
    if kind == "mlp":
        return [nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 8), nn.ReLU()]
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 8, 3, padding=1)]
    return [*layers, nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


HEADS: list[list[Any]] = [
    [nn.Linear(8, 3)],
    [nn.Dropout(0.1), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)],
    [nn.LayerNorm(8), nn.Linear(8, 3)],
]


@pytest.mark.parametrize("kind", ["mlp", "convolutions"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("is_appended", [True, False])
def test_body_is_filled_whether_it_gets_or_loses_a_head(
    kind: str, head: list[Any], is_appended: bool
) -> None:
    with_head, without = nn.Sequential(*body(kind), *head), nn.Sequential(*body(kind))
    parent, child = (without, with_head) if is_appended else (with_head, without)
    report = transfer(parent, child, torch.randn(2, 4) if kind == "mlp" else IMAGES)
    theirs, mine = parent.state_dict(), child.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in without.state_dict())
    assert not report.preserved_in_eval
    assert report.kept == "all but the head"
    assert report.heads is not None
    assert bool(report.heads.child) is is_appended
    assert "preserved but for the head" in str(report)


def test_a_head_gets_another_number_of_classes() -> None:
    parent, child = (
        nn.Sequential(*body("convolutions"), nn.Linear(8, classes)) for classes in (10, 3)
    )
    report = transfer(parent, child, IMAGES)
    assert report.heads == Heads(parent=("7",), child=("7",), entries=("7",), ends=(), outputs=())
    assert report.kept == "all but the head"
    assert torch.equal(parent[:7](IMAGES), child[:7](IMAGES))


def test_a_small_body_may_have_a_head_for_many_classes() -> None:
    """The head holds most of the parent's parameters, but few of the child's."""
    parent, child = (
        nn.Sequential(*body("convolutions"), nn.Linear(8, classes)) for classes in (1000, 3)
    )
    report = transfer(parent, child)
    assert report.kept == "all but the head"
    assert sum(p.numel() for p in parent[-1].parameters()) > 0.9 * sum(
        p.numel() for p in parent.parameters()
    )


class TwoHeads(nn.Module):
    """A body whose result is an output, too, and one or two heads."""

    def __init__(self, *classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*body("mlp"))
        self.heads = nn.ModuleList(nn.Linear(8, number) for number in classes)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.body(x)
        return (x, *(head(x) for head in self.heads))


def test_one_of_several_outputs_gets_another_head() -> None:
    x = torch.randn(2, 4)
    report = transfer(TwoHeads(5, 6), TwoHeads(5, 7), x)
    assert report.heads is not None
    assert report.heads.child == report.heads.parent == ("heads.1",)
    assert report.heads.outputs == (0, 1)
    report = transfer(TwoHeads(5), TwoHeads(5, 7), x)
    assert report.heads is not None
    assert (report.heads.child, report.heads.parent) == (("heads.1",), ())


class Tied(nn.Module):
    """A body of words, with or without a head that shares the weights of its embedding."""

    def __init__(self, has_head: bool) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(50, 8), nn.Linear(8, 8)
        self.has_head = has_head

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(self.words(x)).tanh()
        return nn.functional.linear(y, self.words.weight) if self.has_head else y


@pytest.mark.parametrize("is_appended", [True, False])
def test_a_head_may_share_weights_with_the_body(is_appended: bool) -> None:
    report = transfer(Tied(not is_appended), Tied(is_appended), WORDS)
    assert report.heads is not None
    expected = ("words (tied linear)",), ()
    assert (report.heads.child, report.heads.parent) == expected[:: 1 if is_appended else -1]


class Narrow(nn.Module):
    """Reads half of its body's units."""

    def __init__(self, classes: int, units: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)
        self.head, self.units = nn.Linear(units, classes), units

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x).relu()).tanh()
        return self.head(x[:, : self.units])  # type: ignore[no-any-return]


def chain(*widths: int) -> nn.Sequential:
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())))


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (chain(4, 16, 16, 16, 3), chain(4, 16, 12, 16, 5)),  # a layer of the body is narrower
        (chain(4, 16, 16, 16, 3), chain(4, 16, 5)),  # most of the parent is gone
        (chain(4, 8, 3), chain(4, 8, 3)[:-1]),  # no layer differs
    ],
)
def test_more_than_the_head_is_lost(parent: nn.Module, child: nn.Module) -> None:
    report = transfer(parent, child, torch.randn(2, 4))
    assert report.heads is None
    assert report.kept == "weights"


def test_a_head_may_begin_with_an_activation() -> None:
    child = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5))
    report = transfer(chain(4, 8, 3), child, torch.randn(2, 4))
    assert report.heads == Heads(parent=("2",), child=("2",), entries=(), ends=("0",), outputs=())


def test_what_no_layer_reads_is_not_claimed() -> None:
    report = transfer(Narrow(3, 8), Narrow(5, 4), torch.randn(2, 4))
    assert report.heads is None


class Sly(nn.Module):
    """Its body computes something else when it runs with values."""

    def __init__(self, classes: int, sign: float) -> None:
        super().__init__()
        self.first, self.head, self.sign = nn.Linear(4, 8), nn.Linear(8, classes), sign

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        if not x.is_meta:
            x = self.sign * x
        return self.head(x)  # type: ignore[no-any-return]


def test_a_body_that_runs_otherwise_is_not_claimed() -> None:
    x = torch.randn(2, 4)
    assert transfer(Sly(3, 1.0), Sly(5, 1.0), x).kept == "all but the head"
    assert transfer(Sly(3, 1.0), Sly(5, 2.0), x).kept == "weights"


class Masked(nn.Module):
    """Computes its mask twice from numbers of positions, as language models do."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (torch.arange(x.shape[1])[None] + 0 for _ in range(2))
        mask = (columns[:, None, :] <= rows[:, :, None]).to(x)
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(mask @ x)
        return self.last(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("layers", [2, 3])
def test_a_value_that_is_computed_twice_is_one_value(layers: int) -> None:
    report = transfer(Masked(2), Masked(layers), torch.randn(2, 5, 4))
    assert report.kept == "all", report.lost_in_eval


class Spread(nn.Module):
    """Adds a bias to a product that is spread over its outputs, or over its rows."""

    def __init__(self, width: int, rows: tuple[int, ...]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, width))
        self.bias = nn.Parameter(torch.randn(*rows, width if len(rows) else 1))
        self.last = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.addmm(self.bias, x, self.weight).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize("rows", [(), (2,)])
def test_a_bias_that_is_spread_is_no_layers(rows: tuple[int, ...]) -> None:
    x = torch.randn(2, 4)
    assert transfer(Spread(8, rows), Spread(8, rows), x).kept == "all"
    parent, child = Spread(8, rows), Spread(16, rows)
    if transfer(parent, child, x).kept == "all":
        assert torch.allclose(parent(x), child(x), atol=1e-5)


class Flattened(nn.Module):
    """Flattens positions between its layers, and back."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers:
            flat = x.reshape(-1, 8)
            x = (flat + layer(flat)).view(x.shape)
        return self.last(x.reshape(-1, 8))  # type: ignore[no-any-return]


@pytest.mark.parametrize("layers", [2, 3])
def test_a_view_undoes_another(layers: int) -> None:
    report = transfer(Flattened(2), Flattened(layers), torch.randn(2, 5, 4))
    assert report.kept == "all", report.lost_in_eval


def normed(layers: int, eps: float) -> nn.Module:
    body = [nn.Linear(4, 8), nn.LayerNorm(8, eps)]
    return nn.Sequential(*body, *(nn.LayerNorm(8, eps) for _ in range(layers)), nn.Linear(8, 3))


@pytest.mark.parametrize(("eps", "dtype"), [(1e-12, torch.float32), (1e-17, torch.float64)])
def test_an_epsilon_below_rounding_changes_nothing(eps: float, dtype: Any) -> None:
    x = torch.randn(2, 4, dtype=dtype)
    parent = normed(1, eps).to(dtype)
    child, coarser = (normed(2, each).to(dtype) for each in (eps, 1e-5))
    assert transfer(parent, child, x).kept == "all"
    assert transfer(normed(1, 1e-5).to(dtype), coarser, x).kept != "all"
