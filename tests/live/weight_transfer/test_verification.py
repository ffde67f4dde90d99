"""Running parent and child says what of the function the child has, and changes neither."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import Tensor, nn  # noqa: E402

from wattkeeper.live import transfer  # noqa: E402
from wattkeeper.live.weight_transfer.report import Verification  # noqa: E402


def verify(parent: nn.Module, child: nn.Module, inputs: Any = None) -> Verification:
    inputs = torch.randn(2, 4) if inputs is None else inputs
    found = transfer(parent, child, inputs, verify=True).verification
    assert found is not None
    return found


class Net(nn.Module):
    """Layers with activations between, of which the first may be written otherwise."""

    def __init__(self, classes: int = 3, *, other: bool = False, width: int = 8) -> None:
        super().__init__()
        self.first, self.second, self.other = nn.Linear(4, width), nn.Linear(width, 8), other
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = 2 * (2 * x).sigmoid() - 1 if self.other else x.tanh()
        return self.classify(self.second(x).tanh(), x)

    def classify(self, x: Tensor, _: Tensor) -> Tensor:
        return self.head(x)  # type: ignore[no-any-return]


def test_equal_functions_that_operators_do_not_prove() -> None:
    found = verify(Net(), Net(other=True))
    assert (found.found, found.proven, found.agrees) == ("all", "weights", False)
    assert found.difference is not None
    assert found.difference < 1e-12
    assert found.precision == "float64"


def test_a_claim_is_verified_whether_or_not_that_is_asked_for() -> None:
    report = transfer(Net(), Net(width=12), torch.randn(2, 4))
    assert report.kept == "all"
    assert report.verification is not None
    assert report.verification.agrees
    assert report.verification.difference is not None
    assert 0 < report.verification.difference < report.verification.tolerance
    assert "as the operators say" in str(report)


def test_nothing_is_run_unless_it_is_claimed_or_asked_for() -> None:
    report = transfer(Net(), Net(width=6), torch.randn(2, 4))
    assert (report.kept, report.verification) == ("weights", None)
    assert verify(Net(), Net(width=6)).found == "neither"


@pytest.mark.parametrize("is_other", [False, True])
def test_a_body_is_found_by_its_values(is_other: bool) -> None:
    found = verify(Net(), Net(5, other=is_other))
    assert found.found == "all but the head"
    assert found.proven == ("weights" if is_other else "all but the head")
    assert found.agrees is not is_other


def test_unrelated_models_have_no_common_body() -> None:
    other = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 5))
    found = verify(Net(), other)
    assert (found.found, found.agrees) == ("neither", True)


def test_a_part_of_what_the_head_reads_is_not_enough() -> None:
    class Mixed(Net):
        def classify(self, x: Tensor, before: Tensor) -> Tensor:
            return self.head(x + before.mean(1, keepdim=True))  # type: ignore[no-any-return]

    assert verify(Net(), Mixed(5)).found == "neither"


def test_values_of_zeros_show_nothing() -> None:
    parent, child = Net(), Net(5, other=True)
    for part in parent.second.parameters():
        nn.init.zeros_(part)
    assert verify(parent, child).found == "neither"


class Constant(nn.Module):
    """Multiplies by a constant of a type of its own, which float64 does not go with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ torch.eye(4, dtype=torch.float32)  # type: ignore[no-any-return]


def test_what_cannot_run_in_float64_runs_as_it_is() -> None:
    found = verify(Constant(), Constant())
    assert (found.found, found.precision, found.agrees) == ("all", "as given", True)
    assert "dtype" in found.reason
    assert "\n" not in str(found)


def test_what_cannot_run_is_said_in_a_line() -> None:
    class Remote(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if not x.is_meta:
                raise RuntimeError("needs a device\nthat is not here")
            return super().forward(x)

    found = verify(Remote(4, 3), Remote(4, 3))
    assert (found.found, found.agrees, found.difference) == ("not run", None, None)
    assert "needs a device" in found.reason
    assert "\n" not in str(found)


def test_outputs_that_are_no_numbers_are_not_equal() -> None:
    class Log(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).log()

    found = verify(Log(), Log())
    assert (found.found, found.difference, found.agrees) == ("neither", None, False)
    assert transfer(Log(), Log(), torch.randn(2, 4)).kept == "weights"


class Everything(nn.Module):
    """Tied weights, a buffer, dropout, a norm with statistics, and a draw at random."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(16, 8), nn.Linear(8, 16)
        self.last.weight = self.words.weight
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.register_buffer("scale", torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.norm(self.words(x).mean(1)) * self.scale)
        return self.last(y + 0.0 * torch.rand(8, dtype=y.dtype))  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_modules_and_random_states_stay_as_they_are(dtype: Any) -> None:
    torch.manual_seed(3)
    parent, child = Everything().to(dtype), Everything().to(dtype)
    parent.train()
    child.eval()
    transfer(parent, child, torch.randint(16, (3, 5)), verify=True)
    filled = copy.deepcopy(child.state_dict())
    before = copy.deepcopy(parent.state_dict())
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    found = verify(parent, child, torch.ones(3, 5, dtype=torch.long))
    assert torch.equal(torch.rand(3), expected)
    assert found.found == "all"
    assert found.precision == "float64"
    assert parent.training
    assert not child.training
    for module, state in ((parent, before), (child, filled)):
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
        assert {p.dtype for p in module.parameters()} == {dtype}
        assert all(p.requires_grad and p.grad is None for p in module.parameters())
        assert module.last.weight is module.words.weight
