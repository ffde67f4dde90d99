"""The types of `manifest.json`: what was run, on what input, with which software."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.analysis.logged.load import BinnedLoad
from wattkeeper.scenarios.analysis.logged.waits import WaitPart
from wattkeeper.scenarios.analysis.times.job_times import JobTimes
from wattkeeper.scenarios.inputs.energy_sources import EnergySources
from wattkeeper.scenarios.inputs.measured_energy import MeasuredEnergy
from wattkeeper.scenarios.inputs.profiled_jobs import ProfiledShare


class TraceProvenance(TypedDict):
    """Where a trace comes from, what is to be known of it, and the digest of its content."""

    trace: str
    kind: str
    format: str
    origin: str
    source: str
    licence: str
    sha256: dict[str, str]
    parameters: dict[str, Any]
    notes: NotRequired[list[str]]
    content: str


class FailedAttempt(TypedDict):
    """An attempt of a live run that ended before its training did."""

    variant: str
    seed: int
    job_id: str
    attempt: int
    cause: str
    message: str


class ArrivedSignal(TypedDict):
    """A signal whose values arrived in a live run, and what stood in for those that did not.

    Attributes:
        source: Where values came from.
        values: How many arrived during the run.
        fallback: What held for slots without a value: a number, or `last`, the last value.
        fallbacks: Slots that were over before their value arrived.
        late_s: When the run began, the slot of its first value had been over for so long, s.
        failures: Questions without an answer during the run.
        problem: Why the last question had none; empty if it had one.
    """

    variant: str
    seed: int
    name: str
    source: str
    values: int
    fallback: float | Literal["last"]
    fallbacks: int
    late_s: float
    failures: int
    problem: str


class LiveReport(TypedDict):
    """What trained: devices and the folder, and for live runs also how attempts ended."""

    folder: str
    devices: list[str]
    energy: list[str]
    time: NotRequired[str]
    runner: NotRequired[str]
    speed: NotRequired[float | None]
    power_limits: NotRequired[str]
    causes: NotRequired[dict[str, int]]
    attempts: NotRequired[list[FailedAttempt]]
    signals: NotRequired[list[ArrivedSignal]]


class TariffReport(TypedDict):
    """What electricity costs and emits under a variant; texts describe a number or a file."""

    origin_s: float
    currency: NotRequired[str]
    price: NotRequired[str]
    carbon: NotRequired[str]
    notes: list[str]


class Manifest(TypedDict):
    """The content of `manifest.json`; `docs/results.md` describes the keys."""

    scenario: Json
    scenario_digest: str
    seeds: list[int]
    backend: Literal["sim", "live"]
    inputs: list[TraceProvenance]
    dropped_jobs: dict[str, int]
    ignored_gpu_types: dict[str, int]
    mapping: list[Mapping[str, Any]]
    modelled: list[str]
    windows: list[tuple[float, float]]
    electricity: NotRequired[dict[str, TariffReport]]
    results_digest: str
    jobs: int
    attempts: int
    events: int
    simulated_s: float
    versions: dict[str, str]
    host: dict[str, str]
    dropped_for: NotRequired[dict[str, dict[str, int]]]
    profiled: NotRequired[ProfiledShare]
    measured: NotRequired[MeasuredEnergy]
    energy_sources: NotRequired[EnergySources]
    waits: NotRequired[list[WaitPart]]
    recorded_load: NotRequired[BinnedLoad]
    job_times: NotRequired[JobTimes]
    usage: NotRequired[str]
    live: NotRequired[LiveReport]
    wall_s: NotRequired[float]
