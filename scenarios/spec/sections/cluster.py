"""The section of scenario files on the cluster."""

from collections.abc import Collection, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PositiveInt, Tag, model_validator
from pydantic_core import PydanticCustomError

from wattkeeper.policies.planning.sharing import Sharing
from wattkeeper.policies.profile import EnergyOf
from wattkeeper.scenarios.spec.sections.gpu import NameOrFacts, highest_limit_w
from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.values import Currency, Seconds, Watts, check_distinct
from wattkeeper.traces.generate.node_events import DrawnLosses

MAX_GPUS = 10_000_000


class Nodes(Section):
    """Equal nodes."""

    gpu: str
    """Their GPU type, as the profiles and the jobs call it."""
    count: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """Number of nodes."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of each."""


def _check_power(idle: str, idle_w: float, busy: str, busy_w: float | None) -> None:
    """Refuse a GPU that draws more power idle than busy."""
    if busy_w is not None and idle_w > busy_w:
        raise PydanticCustomError(
            "elsewhere",
            "{busy}: a busy GPU draws {busy_w} W, less than an idle one ({idle}, {idle_w} W)",
            {
                "at": (busy,),
                "busy": busy,
                "busy_w": f"{busy_w:g}",
                "idle": idle,
                "idle_w": f"{idle_w:g}",
            },
        )


def _check_limit(
    at: tuple[str, ...], model: NameOrFacts | None, gpu_type: str, busy_w: float | None
) -> None:
    """Refuse a GPU that draws more than its highest power limit, if that is known."""
    limit_w = None if busy_w is None else highest_limit_w(model, gpu_type)
    if limit_w is not None and busy_w is not None and busy_w > limit_w:
        raise PydanticCustomError(
            "elsewhere",
            "{key}: {busy_w} W is above the highest power limit of {gpu}, {limit_w} W: state what "
            "one GPU draws, not its node",
            {
                "at": at,
                "key": ".".join(at),
                "busy_w": f"{busy_w:g}",
                "gpu": model if isinstance(model, str) else gpu_type,
                "limit_w": f"{limit_w:g}",
            },
        )


class Power(Section):
    """Power of a GPU type where it was not measured; results call it modelled."""

    idle_w: Watts
    """Power of one GPU while no job holds it, W."""
    busy_w: Watts | None = None
    """Power of one GPU while a job without a profile holds it, W; such jobs need it."""
    model: NameOrFacts | None = None
    """GPU type whose model says what a power limit changes for such jobs, or facts of these GPUs;
    the type itself if absent."""

    @model_validator(mode="after")
    def _busy_draws_more(self) -> Self:
        _check_power("idle_w", self.idle_w, "busy_w", self.busy_w)
        return self


class Sleep(Section):
    """A node sleeps while all its GPUs are free."""

    after_s: Seconds
    """Time from the end of its last job, or from the start, until it sleeps, s."""
    power_w: Watts
    """Power of each of its GPUs asleep, W."""
    wake_s: Seconds
    """Time to wake, s: a job that starts there first holds its GPUs idle for it."""


def _check_sleep(sleep: Sleep | None, idle: str, idle_w: float) -> None:
    """Refuse a GPU that draws more power asleep than idle."""
    if sleep is not None and sleep.power_w > idle_w:
        raise PydanticCustomError(
            "elsewhere",
            "sleep.power_w: a GPU asleep draws {asleep_w} W, more than an idle one ({idle}, "
            "{idle_w} W)",
            {
                "at": ("sleep", "power_w"),
                "asleep_w": f"{sleep.power_w:g}",
                "idle": idle,
                "idle_w": f"{idle_w:g}",
            },
        )


class Preemption(Section):
    """Cost of a preemption."""

    checkpoint_s: Seconds = 0.0
    """Time in which its nodes save its state, s: a job that starts there meanwhile holds its GPUs
    idle until that is done."""
    restore_s: Seconds = 0.0
    """Time for which it holds its GPUs idle before it resumes, s."""


class Checkpoints(Section):
    """Checkpoints of jobs, from which they resume once a node was lost."""

    every_s: Annotated[float, Field(gt=0, le=1e9)] | Literal["young", "daly", "on-notice"]
    """Training time from the begin of one to that of the next, s; `young` and `daly`: as follows
    from the losses observed so far; `on-notice`: none but on notice."""
    write_s: Seconds
    """Time to write one, s."""
    read_s: Seconds = 0.0
    """Time to read one when a job resumes, s; it holds its GPUs idle."""
    blocking: bool = True
    """Whether nothing is trained while one is written. If not, it holds what was done when its
    write began."""
    on_notice: bool = False
    """Whether a job writes one when a node of its announces its loss."""

    @model_validator(mode="after")
    def _write_ends_before_the_next(self) -> Self:
        if not self.blocking and isinstance(self.every_s, float) and self.write_s > self.every_s:
            raise ValueError(
                f"write_s: {self.write_s:g} s is longer than every_s, {self.every_s:g} s: one that "
                "is not blocking ends before the next one begins"
            )
        if self.every_s in ("young", "daly") and not self.write_s:
            raise ValueError(
                f"write_s: the interval of {self.every_s} grows with the time of a write, and is 0 "
                "where that is 0; state every_s in seconds"
            )
        if self.every_s == "on-notice" and not self.on_notice:
            raise ValueError("every_s: on-notice needs on_notice: true, or none is ever written")
        return self


class Losses(Section):
    """Nodes that go down and come back."""

    events: str | DrawnLosses
    """A trace of node events, by name or path, or how they are drawn: the same for all variants
    with one seed."""
    checkpoint: Checkpoints | None = None
    """If absent, a job that loses a node starts anew."""
    requeue: Literal["first", "last"] = "first"
    """Whether a job that lost a node waits as it did before (`first`), or as one that is submitted
    then (`last`)."""
    boot_s: Seconds = 0.0
    """Time from a node's return until jobs start there, s; its GPUs idle."""
    notice_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Announces each loss of a trace so long before, s, or when its node comes up if that is later;
    the trace must have no notices of its own. None are announced if absent."""

    @model_validator(mode="after")
    def _notices_of_a_trace(self) -> Self:
        if self.notice_s is not None and isinstance(self.events, DrawnLosses):
            raise ValueError("notice_s: it is for a trace; drawn losses have events.notice")
        return self


class FollowedPrice(Section):
    """A price that changes over time."""

    signal: str
    """Name of a signal (`signals`), in the currency by hour (as `USD/h`), or without a unit."""


Price = Annotated[float, Field(ge=0, le=1e9)] | FollowedPrice


class Rent(Section):
    """What the nodes of elastic jobs cost."""

    node_hour: Price
    """Price of an hour of a node that is up and that an elastic job holds or could take."""
    on_demand: Price | None = None
    """Price of an hour of a node that is never lost: what the same work costs on such nodes is
    compared; not compared if absent."""
    currency: Currency
    """Currency of both, as `USD`; the same for all variants."""


class FollowedCap(Section):
    """A power cap that changes over time."""

    signal: str
    """Name of a signal (`signals`), W."""
    obey: Literal["preempt", "limits"] = "preempt"
    """What happens when it falls: `preempt` preempts jobs, last started first; `limits` lowers
    power limits first, and raises them again when there is room."""
    share: Sharing = "marginal"
    """How `limits` shares the cap out: by the speed that a watt gives (`marginal`), the same
    fraction of each job's highest power (`proportional`), or of its highest limit (`common`)."""


class Facility(Section):
    """Keys of all clusters."""

    energy_of: EnergyOf | None = None
    """What the power of this cluster and of its profiles is of: `gpu`, `node` (whole nodes at the
    plug) or `facility`. The power of a GPU, idle or asleep, then includes its share of that. `gpu`
    if absent."""
    pue: Annotated[float, Field(ge=1, le=10)] = 1.0
    """Power usage effectiveness: power of the whole facility over that of its GPUs, or nodes where
    `energy_of` says so."""
    power_cap_w: Annotated[float, Field(gt=0, le=1e9)] | FollowedCap | None = None
    """Cap on the power of all GPUs (of nodes or the facility where `energy_of` says so) together,
    before `pue`, W: a job waits if it could exceed the cap. A mapping names a signal that it
    follows. Free GPUs count as idle, asleep or not. No cap if absent."""
    sleep: Sleep | None = None
    """Sleep of free nodes; they never sleep if absent."""
    preemption: Preemption = Preemption()
    """Cost of a preemption."""
    losses: Losses | None = None
    """Nodes that go down and come back; none do if absent."""
    rent: Rent | None = None
    """What the nodes of elastic jobs cost; not counted if absent."""


class UniformCluster(Facility):
    """Equal nodes with GPUs of one type."""

    gpu: str
    """GPU type, as the profiles and the jobs call it."""
    gpus: Annotated[int, Field(gt=0, le=MAX_GPUS)]
    """GPUs of all nodes together."""
    gpus_per_node: PositiveInt | None = None
    """GPUs of a node; all on one node if absent."""
    idle_power_w: Watts
    """Power of a GPU while no job holds it, W; results call it modelled."""
    busy_power_w: Watts | None = None
    """Power of a GPU while a job without a profile holds it, W; modelled too. Needed where there
    are such jobs."""
    gpu_model: NameOrFacts | None = None
    """GPU type whose model says what a power limit changes for such jobs, or facts of these GPUs;
    `gpu` if absent."""

    @model_validator(mode="after")
    def _busy_draws_more(self) -> Self:
        _check_power("idle_power_w", self.idle_power_w, "busy_power_w", self.busy_power_w)
        _check_sleep(self.sleep, "idle_power_w", self.idle_power_w)
        _check_limit(("busy_power_w",), self.gpu_model, self.gpu, self.busy_power_w)
        return self

    @model_validator(mode="after")
    def _whole_nodes(self) -> Self:
        if self.gpus % (self.gpus_per_node or self.gpus):
            raise ValueError(
                f"gpus: {self.gpus} GPUs do not fill nodes of {self.gpus_per_node} (gpus_per_node)"
            )
        return self


PartitionTypes = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(check_distinct)]


class MixedCluster(Facility):
    """Nodes with different GPUs."""

    nodes: str | Annotated[tuple[Nodes, ...], Field(min_length=1)]
    """Groups of equal nodes, or a trace of jobs with a table of nodes, by name or path."""
    power: Annotated[dict[str, Power], Field(min_length=1)]
    """Power of a GPU, by GPU type; every type of the nodes has an entry."""
    partitions: Annotated[dict[str, PartitionTypes], Field(min_length=1)] | None = None
    """GPU types of the nodes of each partition, by name. A job runs only on those of its partition
    (`queue` of the trace). Each partition has a queue of its own, which `select` orders by itself;
    partitions that share a type share a queue. All jobs wait in one queue if absent."""

    @model_validator(mode="after")
    def _power_is_stated(self) -> Self:
        if not isinstance(self.nodes, str):
            types = {group.gpu for group in self.nodes}
            absent = sorted(types - set(self.power))
            if absent:
                raise ValueError(f"power: no entry for {', '.join(absent)}")
            for name, named in (self.partitions or {}).items():
                if fault := fault_of_partition(name, named, types):
                    raise PydanticCustomError(
                        "elsewhere", "{fault}", {"at": ("partitions", name), "fault": fault}
                    )
        return self

    @model_validator(mode="after")
    def _power_is_possible(self) -> Self:
        for name, power in self.power.items():
            _check_sleep(self.sleep, f"power.{name}.idle_w", power.idle_w)
            _check_limit(("power", name, "busy_w"), power.model, name, power.busy_w)
        return self


def fault_of_partition(name: str, named: Sequence[str], types: Collection[str]) -> str:
    """Which GPU types of a partition no node has; empty if there are none."""
    absent = ", ".join(repr(each) for each in named if each not in types)
    known = ", ".join(sorted(types))
    return f"{name}: no node has GPU type {absent}; nodes have {known}" if absent else ""


def own_keys(form: type[Facility]) -> list[str]:
    """The keys that only this form of a cluster has."""
    return [key for key in form.model_fields if key not in Facility.model_fields]


def _form_of(cluster: object) -> str | None:
    """The name of the form; None if keys of both are there."""
    if isinstance(cluster, Facility):
        return type(cluster).__name__
    keys = set(cluster) if isinstance(cluster, dict) else set()
    if keys.isdisjoint(own_keys(MixedCluster)):
        return UniformCluster.__name__
    return MixedCluster.__name__ if keys.isdisjoint(own_keys(UniformCluster)) else None


AnyCluster = Annotated[
    Annotated[UniformCluster, Tag(UniformCluster.__name__)]
    | Annotated[MixedCluster, Tag(MixedCluster.__name__)],
    Discriminator(
        _form_of,
        custom_error_type="both_forms",
        custom_error_message=(
            f"a cluster has either {', '.join(own_keys(UniformCluster))} or "
            f"{', '.join(own_keys(MixedCluster))}; this one mixes both"
        ),
    ),
]
"""Discriminated by their own keys."""
