"""Constants of the models in the public artifact of Oobleck (SOSP '23), by name."""

from __future__ import annotations

from typing import Final, NamedTuple

from benchmarks.papers.replays.bamboo import BambooModel
from benchmarks.papers.replays.oobleck import OobleckModel
from benchmarks.papers.replays.varuna import VarunaModel


class PublishedModel(NamedTuple):
    """A model.

    Attributes:
        rates: Its name in the published rates.
        oobleck: Constants of Oobleck.
        varuna: Constants of Varuna.
        bamboo: Constants of Bamboo.
        fits_bamboo: Whether Bamboo has the memory for it; else its rate is 0.
        spared_on_recorded: Whether Varuna loses no work on the recorded traces, as published.
    """

    rates: str
    oobleck: OobleckModel
    varuna: VarunaModel
    bamboo: BambooModel
    fits_bamboo: bool
    spared_on_recorded: bool


def _idle(counts: str) -> dict[int, int]:
    """Idle nodes by nodes, from 30 down."""
    return {30 - index: int(count) for index, count in enumerate(counts.split())}


_IDLE_SMALL: Final = _idle("0 1 0 0 2 1 0 2 1 0 0 1 0 1 0 0")
_IDLE_LARGE: Final = _idle("2 2 0 3 2 1 0 3 2 1 0 3 2 1 0 3")
_BERT_RESTARTS_MS: Final = {
    **{nodes: 71_300 + 3_700 * (nodes - 15) for nodes in range(15, 26)},
    26: 112_000,
    27: 49_100,
    28: 67_600,
    29: 67_600,
    30: 71_300,
}

PUBLISHED_MODELS: Final = {
    "BERT-large": PublishedModel(
        "bertLarge",
        OobleckModel(8192, 2_000),
        VarunaModel(8192, 76_000, 15_800, {}, _BERT_RESTARTS_MS),
        BambooModel(8192, 76_000),
        fits_bamboo=True,
        spared_on_recorded=True,
    ),
    "GPT-2-ours": PublishedModel(
        "gpt_2_ours",
        OobleckModel(1024, 2_000),
        VarunaModel(1024, 83_000, 11_500, _IDLE_SMALL),
        BambooModel(1024, 80_000),
        fits_bamboo=True,
        spared_on_recorded=True,
    ),
    "GPT-3-medium": PublishedModel(
        "gpt_3m",
        OobleckModel(819, 3_000),
        VarunaModel(819, 78_700, 11_200, _IDLE_SMALL),
        BambooModel(819, 100_000),
        fits_bamboo=False,
        spared_on_recorded=True,
    ),
    "GPT-3-2_7b": PublishedModel(
        "gpt_3_2_7b",
        OobleckModel(512, 6_000),
        VarunaModel(512, 515_000, 50_000, _IDLE_LARGE),
        BambooModel(512, 230_000),
        fits_bamboo=False,
        spared_on_recorded=False,
    ),
    "GPT-3-6_7b": PublishedModel(
        "gpt_3_6_7b",
        OobleckModel(1024, 10_000),
        VarunaModel(1024, 701_000, 120_000, _IDLE_LARGE),
        BambooModel(1024, 450_000),
        fits_bamboo=False,
        spared_on_recorded=False,
    ),
}
