"""The section of scenario files on live runs."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from wattkeeper.scenarios.spec.sections.section import Section
from wattkeeper.scenarios.spec.sections.values import Label, check_distinct


def _read_off(value: object) -> object:
    """In YAML, off without quotes is false."""
    return "off" if value is False else value


class LiveWorkload(Section):
    """A script that trains a workload, with `wattkeeper.live.Session` in it."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """The command, word by word; `python` is the interpreter that runs wattkeeper."""
    batch_sizes: Annotated[
        tuple[PositiveInt, ...], Field(min_length=1), AfterValidator(check_distinct)
    ]
    """Global batch sizes that may be chosen, samples."""
    default_batch_size: PositiveInt
    """The one that is used by default; the learning rate of the script belongs to it."""
    target: float | None = None
    """Value of the metric that ends the training; it does all its epochs if absent."""
    higher_is_better: bool = True
    """Whether the target is reached from below."""
    max_epochs: PositiveInt
    """Number of epochs after which it is given up."""
    samples_per_epoch: PositiveInt | None = None
    """Samples of an epoch; only policies that ask for slices need it."""

    @model_validator(mode="after")
    def _default_is_there(self) -> Self:
        if self.default_batch_size not in self.batch_sizes:
            raise ValueError(
                f"default_batch_size: {self.default_batch_size} is not among batch_sizes "
                f"({', '.join(map(str, self.batch_sizes))})"
            )
        return self


class LiveSection(Section):
    """Settings of `wattkeeper run --live`; the simulator ignores them."""

    runner: Literal["subprocess", "torchrun", "ray"] = "subprocess"
    """`subprocess` and `torchrun` run on this host, the latter with one process per GPU; `ray` runs
    on all hosts of a Ray cluster."""
    lease_s: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """Time without a message after which an attempt is given up, s; its start counts."""
    power_control: Annotated[Literal["auto", "off"], BeforeValidator(_read_off)] = "auto"
    """`auto`: power limits are set where this is allowed; `off`: never."""
    speed: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Seconds of the run per second of the host, while all rehearsals wait; only where all
    workloads are rehearsed. Real time if absent."""
    workloads: dict[Label, LiveWorkload] = Field(default_factory=dict)
    """How workloads are trained; others are rehearsed from their profiles on a synthetic device. A
    job of a trace that names no workload has the task of its model."""

    @model_validator(mode="after")
    def _speed_of_rehearsals(self) -> Self:
        if self.speed is not None and self.workloads:
            raise ValueError(
                "speed: a real training cannot be sped up; leave it out, or `workloads`"
            )
        return self
