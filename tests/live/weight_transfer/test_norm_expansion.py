"""Residual streams and norms over them are widened by any factor."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402, N812
from torch import Tensor, nn  # noqa: E402

from tests.support import torch_models as models  # noqa: E402
from tests.support.torch_models import Encoder  # noqa: E402
from tests.support.transfers import LIMIT, STREAM, WORDS, error, fill  # noqa: E402
from wattkeeper.live import transfer  # noqa: E402

torch.manual_seed(0)  # of the models below


@pytest.mark.parametrize("depth", [2, 4])
def test_residual_stream_of_any_width_preserves_the_function(depth: int) -> None:
    report = fill(Encoder(), Encoder(40, 2, depth=depth), WORDS)
    assert report.preserved_in_eval
    assert report.preserved_in_train
    assert report.coverage == 1 or depth > 2


class Stream(nn.Module):
    """A stream of units that a function of the module and its input computes."""

    def __init__(self, width: int, how: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.how, self.width = how, width
        self.first, self.head = nn.Linear(7, width), nn.Linear(width, 5)
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear, self.doubled = nn.Linear(width, width), nn.Linear(7, 2 * width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.recurrent = nn.LSTM(7, width, batch_first=True)
        self.tokens, self.factor = nn.Linear(12, 12), nn.Parameter(torch.ones(1) * 2)
        self.turned, self.scale = (
            nn.Parameter(torch.randn(7, width)),
            nn.Parameter(torch.rand(width)),
        )
        self.grouped = nn.Conv1d(8, width, 1, groups=2)
        self.depthwise = nn.Conv1d(width, width, 1, groups=width)
        self.plain = nn.LayerNorm(width, elementwise_affine=False)
        self.unshifted = nn.LayerNorm(width, bias=False)
        self.over_all = nn.LayerNorm((12, width))
        self.register_buffer("mask", torch.rand(width) > 0.5)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.how(self, x))
        return outputs


def attend(m: Any, x: Tensor, read: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A hidden value, and the results and weights of attention over `read` of it."""
    x = m.first(x)
    of = read(x)
    return (x, *m.attention(of, of, of))


LINEAR_STREAMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "plain": lambda m, x: m.last(m.first(x)),
    "scaled": lambda m, x: m.last(2 * m.first(x) - m.linear(m.norm(m.first(x))) / 3),
    "place": lambda m, x: m.last(m.first(x)[:, 3]),
    "places": lambda m, x: m.last(m.first(x)[:, 2:5]),
    "mean": lambda m, x: m.last(m.first(x).mean(1)),
    "turned": lambda m, x: m.last(m.first(x).mT.mT),
    "gate": lambda m, x: (y := m.last(m.first(x))) * m.linear(y).sigmoid(),
    "unshifted": lambda m, x: m.unshifted(m.first(x)),
    "attention": lambda m, x: m.last(sum(attend(m, x, m.norm)[:2])),
    "weights": lambda m, x: (of := attend(m, x, m.norm))[2].mean() + m.last(of[0] + of[1]),
}

OTHER_STREAMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "raw": lambda m, x: m.last(m.first(x)) + m.first(x),
    "raw linear": lambda m, x: m.last((y := m.first(x)) + m.linear(y)),
    "raw attention": lambda m, x: m.last(sum(attend(m, x, lambda x: x)[:2])),
    "raw afterwards": lambda m, x: (y := m.first(x)) * 0.1 + m.last(y),
    "result of attention": lambda m, x: (
        (of := attend(m, x, m.norm))[1].relu() + m.last(of[0] + of[1])
    ),
    "tokens": lambda m, x: m.last((y := m.first(x)) + m.tokens(m.norm(y).mT).mT),
    "computed weight": lambda m, x: m.last(F.linear(x, m.turned.T, m.scale)),
    "computed bias": lambda m, x: m.last(F.linear(x, m.first.weight, m.scale * m.factor)),
    "shared scale": lambda m, x: m.last(m.first(x)) * m.last.weight,
    "two roles": lambda m, x: F.layer_norm(m.first(x), (m.width,), m.scale, m.scale),
    "shared bias": lambda m, x: m.last(m.first(x)) * m.first.bias,
    "mask": lambda m, x: m.last(m.first(x) + m.mask),
    "scale": lambda m, x: m.last(m.first(x) * m.scale),
    "relu": lambda m, x: m.last(m.first(x).relu()),
    "lstm": lambda m, x: m.last(m.recurrent(x)[0]),
    "units and places": lambda m, x: m.over_all(m.first(x)),
    "without scale": lambda m, x: m.plain(m.first(x)),
    "shift alone": lambda m, x: F.layer_norm(m.first(x), (m.width,), None, m.scale),
    "products": lambda m, x: (y := m.last(m.first(x))) + (y @ y.mT).softmax(-1) @ y,
    "groups": lambda m, x: m.last(m.grouped(F.pad(x, (0, 1)).mT).mT),
    "depthwise": lambda m, x: m.last(m.depthwise(m.first(x).relu().mT).mT),
    "part": lambda m, x: m.last(m.doubled(x)[..., : m.width]),
    "tied": lambda m, x: m.last(m.first(x)) @ m.first.weight @ m.turned,
}


@pytest.mark.parametrize("how", LINEAR_STREAMS)
def test_linear_operators_preserve_mean_units(how: str) -> None:
    report = fill(Stream(16, LINEAR_STREAMS[how]), Stream(40, LINEAR_STREAMS[how]), STREAM)
    assert report.preserved_in_train, report


@pytest.mark.parametrize(
    ("how", "descent"), [("plain", torch.optim.SGD), ("unshifted", torch.optim.Adam)]
)
def test_mean_units_diverge_in_training(how: str, descent: Any) -> None:
    child = Stream(40, LINEAR_STREAMS[how])
    transfer(models.trained_like(Stream(16, LINEAR_STREAMS[how]), 1), child, STREAM)
    left_over = child.first.weight.detach()[32:]
    assert not torch.pdist(left_over).any()
    steps = descent(child.parameters(), lr=0.1)
    for _ in range(10):
        steps.zero_grad()
        F.cross_entropy(child(STREAM).flatten(0, 1), torch.arange(96) % 5).backward()
        steps.step()
    assert float(torch.pdist(left_over).min()) > 1e-7 * float(left_over.norm())


@pytest.mark.parametrize("how", OTHER_STREAMS)
def test_norm_over_uneven_replicas_is_reported(how: str) -> None:
    report = fill(Stream(16, OTHER_STREAMS[how]), Stream(40, OTHER_STREAMS[how]), STREAM)
    assert any("units that stand for" in reason for reason in report.lost_in_eval), report


@pytest.mark.parametrize(
    ("parent", "child", "inputs"),
    [
        (Encoder(norm_first=False), Encoder(40, 2, norm_first=False), WORDS),
        (models.Text1d(), models.Text1d(40), WORDS),
    ],
)
def test_network_with_uneven_norms_has_full_coverage(
    parent: Any, child: Any, inputs: Tensor
) -> None:
    report = fill(parent, child, inputs)
    assert report.coverage == 1
    assert any("units that stand for" in reason for reason in report.lost_in_eval)


def test_layer_inserted_into_the_stream_is_reported() -> None:
    """The new layer has no origin, so it cannot write the mean of all units."""
    longer = Stream(40, lambda m, x: m.last(m.linear(m.first(x))))
    assert not fill(Stream(16, LINEAR_STREAMS["plain"]), longer, STREAM).preserved_in_eval


def test_inserted_post_norm_blocks_preserve_the_function_up_to_eps() -> None:
    parent, child = Encoder(norm_first=False), Encoder(norm_first=False, depth=4)
    models.trained_like(parent, 1)
    report = transfer(parent, child, WORDS)
    assert "eps" in report.lost_in_eval[0]
    assert error(parent, child, WORDS, train=True) < LIMIT
