"""Models whose head has the weights of their embedding become wider and keep their function."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import numpy as np  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from tests.support.examples import examples  # noqa: E402
from tests.support.transfers import WORDS, error, randomise  # noqa: E402
from wattkeeper.live.weight_transfer.model_graph import trace  # noqa: E402
from wattkeeper.live.weight_transfer.transfer import grow  # noqa: E402

NORMS = ("layer", "rms", "by hand", "one more", "none", "shared", "added twice")
SCALES = ("none", "constant", "width")
ENDS = ("logits", "hidden too", "residual", "two heads", "sliced")


class Words(nn.Module):
    """Embedding, a residual layer, a scale of some kind, and a head with the embedding's weight."""

    def __init__(self, width: int, norm: str, scale: str, end: str) -> None:
        super().__init__()
        self.words, self.body = nn.Embedding(50, width), nn.Linear(width, width)
        self.norm, self.scale, self.end = norm, scale, end
        self.gain = nn.Parameter(torch.ones(width))
        self.first = nn.LayerNorm(width)
        self.last = self.first if norm == "shared" else nn.LayerNorm(width)
        if norm == "rms":
            self.last = nn.RMSNorm(width, eps=1e-6)  # type: ignore[assignment]

    def normalise(self, x: Tensor) -> Tensor:
        if self.norm == "none":
            return x
        if self.norm in ("layer", "rms", "shared"):
            return self.last(x)  # type: ignore[no-any-return]
        y = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
        if self.norm == "one more":
            return y * (1.0 + self.gain)
        if self.norm == "added twice":
            return y * (self.gain + self.gain.flip(0))
        return self.gain * y

    def forward(self, x: Tensor) -> tuple[Tensor, ...] | Tensor:
        y = self.words(x)
        y = self.normalise(y + self.body(self.first(y)).tanh())
        if self.scale != "none":
            y = y * (y.shape[-1] ** -0.5 if self.scale == "width" else 0.3)
        logits = nn.functional.linear(y, self.words.weight)
        if self.end == "hidden too":
            return logits, y
        if self.end == "residual":
            return logits + y.mean(-1, keepdim=True)
        if self.end == "two heads":
            return logits, nn.functional.linear(y, self.words.weight).tanh()
        return logits[:, -1:] if self.end == "sliced" else logits


def is_kept(widths: tuple[int, int], norm: str, scale: str, end: str) -> bool:
    """Whether the function is claimed to be kept; checks a claim in float64."""
    models = [
        randomise(Words(width, norm, scale, end), np.random.default_rng(width)) for width in widths
    ]
    traced = [trace(model, WORDS[:2], "model") for model in models]
    report = grow(traced[0], traced[1])
    if report.kept == "all":
        outputs = [nn.Sequential(model, _First()) for model in models]
        assert error(outputs[0], outputs[1], WORDS[:2], train=False) < 1e-9, report
    return report.kept == "all"


class _First(nn.Module):
    def forward(self, given: tuple[Tensor, ...] | Tensor) -> Tensor:
        return given if isinstance(given, Tensor) else given[0]


@pytest.mark.parametrize("norm", ["layer", "rms", "by hand", "one more"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("end", ["logits", "sliced"])
def test_the_last_scale_carries_the_shares(norm: str, scale: str, end: str) -> None:
    assert is_kept((8, 16), norm, scale, end)


@given(
    width=st.integers(2, 6),
    factor=st.sampled_from([0.5, 1, 1.5, 2, 3]),
    norm=st.sampled_from(NORMS),
    scale=st.sampled_from(SCALES),
    end=st.sampled_from(ENDS),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_claim_is_true(width: int, factor: float, norm: str, scale: str, end: str) -> None:
    kept = is_kept((2 * width, int(2 * width * factor)), norm, scale, end)
    assert not (kept and factor < 1)
