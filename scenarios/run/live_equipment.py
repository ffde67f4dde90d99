"""Equipment of live runs: devices, and the training of each workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from wattkeeper.live.controller.attempt import Trainings, TrainingSpec
from wattkeeper.live.controller.backend import LIVE
from wattkeeper.live.controller.launchers import ray as ray_runner
from wattkeeper.live.controller.launchers.local import check_torch, check_torchrun, command_line
from wattkeeper.live.devices.device import Device, common_range
from wattkeeper.live.host.wall_clock import WallClock
from wattkeeper.live.session.arguments import power_limit_steps
from wattkeeper.policies.errors import EnvironmentLacks, InputError, PolicyError, ScenarioError
from wattkeeper.policies.points.job import WHOLE
from wattkeeper.policies.points.views import Options
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.inputs.run_inputs import InputsByVariant, RunInputs
from wattkeeper.scenarios.run import live_folder
from wattkeeper.scenarios.spec.loading import LoadedScenario, locate_error
from wattkeeper.scenarios.spec.sections.live import LiveSection, LiveWorkload
from wattkeeper.scenarios.spec.variants import VariantSpec
from wattkeeper.scenarios.spec.yaml_document import locate_errors
from wattkeeper.sim.replay.backend import options_of


class HostDevices(NamedTuple):
    """The devices of a host, and what may be done with them.

    Attributes:
        types: Types of its devices.
        gpus: Devices that have power limits.
        limits_w: Limits that may be chosen, W, ascending; the one in force if none may.
        allowed: Whether limits may be set.
        why: Reason if they may not; else empty.
        how: Source of energy values; `absent` if there is none.
    """

    types: tuple[str, ...]
    gpus: int
    limits_w: tuple[float, ...]
    allowed: bool
    why: str
    how: str


@dataclass(frozen=True)
class Equipment:
    """Equipment of the live runs of a scenario.

    Attributes:
        section: The scenario's section on live runs.
        folder: Folder of their logs and state.
        trainings: The training of each workload.
        devices: Types of the devices that measure.
        limits: Whether power limits are set, and if not, why.
        measured: Whether energy is measured.
        host: The devices that scripts train on; None where all is rehearsed.
    """

    section: LiveSection
    folder: Path
    trainings: Trainings
    devices: tuple[str, ...]
    limits: str
    measured: bool
    host: HostDevices | None = None


def equip(
    loaded: LoadedScenario, runs: InputsByVariant, folder: Path, ray: str | None = None
) -> Equipment:
    """Check that a scenario can run live here, and find the devices that it runs on.

    The Ray cluster at the address `ray` trains, instead of what the scenario says.

    Raises:
        InputError: If its workload, or the setting of a variant, is for the simulator alone.
        PolicyError: If a policy needs to know the future.
        EnvironmentLacks: If a package or a device is missing.
    """
    section = loaded.scenario.live or LiveSection()
    if ray is not None:
        section = section.model_copy(update={"runner": "ray"})
    check_live(loaded, runs, section)
    if section.runner == "torchrun":
        check_torchrun()
    elif section.runner == "ray":
        ray_runner.connect(ray)
    trainings = {
        key: TrainingSpec(options_of(profile), profile=profile)
        for inputs in runs.values()
        for key, profile in inputs.profiles.items()
    }
    if not section.workloads:
        return Equipment(section, folder, trainings, ("synthetic",), "set", True)
    for name, workload in section.workloads.items():
        with locate_errors(loaded.document, "live", "workloads", name, "command"):
            command_line(workload.command)
            if section.runner != "ray":
                check_torch(workload.command)
    known = live_folder.read_devices(folder)
    if known is not None:
        devices = HostDevices(
            **known | {name: tuple(known[name]) for name in ("types", "limits_w")}
        )
    elif section.runner == "ray":
        devices = ray_runner.run_on_gpu_host(_find_host_devices, section.power_control)
    else:
        devices = _find_host_devices(section.power_control)
    _check_gpu_types(loaded, runs)
    _check_devices(loaded, section, devices, max(own.cluster.gpus for own in runs.values()))
    inputs = runs[loaded.scenario.baseline]
    for name, gpus in _trained_jobs(inputs):
        workload = section.workloads[name]
        for gpu_type in inputs.cluster.gpu_types:
            options = _options(name, workload, gpu_type, gpus, devices.limits_w)
            trainings[name, gpus, gpu_type] = TrainingSpec(
                options,
                workload.command,
                workload.target,
                workload.higher_is_better,
                None,
                devices.allowed,
            )
    limits = "set" if devices.allowed else f"not set: {devices.why}"
    return Equipment(
        section, folder, trainings, devices.types, limits, devices.how != "absent", devices
    )


def check_live(loaded: LoadedScenario, runs: InputsByVariant, section: LiveSection) -> None:
    """Refuse what no live run can do, whatever devices there are.

    Raises:
        InputError: If its workload, or the setting of a variant, is for the simulator alone.
        PolicyError: If a policy is.
    """
    for name, inputs in runs.items():
        _check_workload(loaded, inputs, section)
        variant = loaded.variants[name]
        try:
            _check_variant(variant)
            if section.workloads:
                _check_forecasts(inputs)
                _check_samples(variant, section)
            if section.workloads and variant.zoo is not None:
                _check_zoo(loaded, inputs, section)
        except ScenarioError:  # it has its place
            raise
        except (InputError, PolicyError) as error:
            raise locate_error(loaded, name, error) from None


def _trained_jobs(inputs: RunInputs) -> list[tuple[str, int]]:
    """Workloads that scripts train, each with the numbers of GPUs that its jobs hold."""
    if inputs.jobs is None:
        return [(name, inputs.gpus) for name in sorted(inputs.trained)]
    kinds = inputs.jobs.group_by(["workload", "gpus"], use_threads=False).aggregate([])
    pairs = zip(kinds["workload"].to_pylist(), kinds["gpus"].to_pylist(), strict=True)
    return [pair for pair in pairs if pair[0] in inputs.trained]


def _check_workload(loaded: LoadedScenario, inputs: RunInputs, section: LiveSection) -> None:
    """Refuse a workload that cannot run live, whatever devices there are."""
    document = loaded.document
    unknown = sorted(set(section.workloads) - set(inputs.recurrences))
    if unknown and inputs.jobs is None:
        raise ScenarioError(
            f"no workload {unknown[0]!r} recurs{did_you_mean(unknown[0], inputs.recurrences)}; "
            f"there is {', '.join(inputs.recurrences)}",
            document.where(("live", "workloads", unknown[0])),
        )
    if section.speed is not None and inputs.jobs is None and not inputs.profiles:
        raise ScenarioError("speed: nothing is rehearsed", document.where(("live",)))
    if inputs.jobs is not None and any(
        milli != WHOLE for milli in inputs.jobs["gpu_milli"].unique().to_pylist()
    ):
        shared = "trace: it has jobs that share GPUs, which no process does live"
        raise ScenarioError(shared, document.where(("workload",)))


def _check_variant(variant: VariantSpec) -> None:
    """Refuse settings and policies of a variant that only the simulator supports."""
    if variant.occupancy == "recorded":
        raise InputError(
            "occupancy: live, a job holds its GPUs for as long as it takes; leave out recorded"
        )
    if variant.profiling == "foreknown":
        raise InputError(
            "profiling: live, what it finds is known when it is done; leave out foreknown"
        )
    for config in variant.policies.by_point.values():
        LIVE.check(config)


def _check_forecasts(inputs: RunInputs) -> None:
    """Refuse forecasts that read the future where scripts train."""
    for name, signal in inputs.signals.items():
        forecast = signal.forecast
        if forecast is not None and forecast.needs_foresight:
            raise InputError(
                f"signals: the forecast {forecast.kind} of {name} reads true values to come, "
                "which no live run knows: choose another one, or rehearse it (leave out "
                "live.workloads)"
            )


def _check_samples(variant: VariantSpec, section: LiveSection) -> None:
    """Refuse slices of some steps where nobody says how many steps an epoch has."""
    tune = variant.policies.tune
    for name, workload in section.workloads.items():
        if tune.slices and workload.samples_per_epoch is None:
            raise PolicyError(
                f"{tune.point}: {tune.kind} trains slices of some steps: say how many samples "
                f"an epoch of {name} has (live.workloads.{name}.samples_per_epoch)",
                tune.point,
            )


def _check_gpu_types(loaded: LoadedScenario, runs: InputsByVariant) -> None:
    """Refuse variants that rename the devices on which all of them train."""
    expected = runs[loaded.scenario.baseline].cluster.gpu_types
    for variant, inputs in runs.items():
        if set(inputs.cluster.gpu_types) != set(expected):
            raise locate_error(
                loaded,
                variant,
                InputError(
                    f"cluster: it has {', '.join(inputs.cluster.gpu_types)}, the baseline "
                    f"{', '.join(expected)}, but live all variants train on the same devices: "
                    "leave out its GPU types, or simulate it"
                ),
            )


def _check_zoo(loaded: LoadedScenario, inputs: RunInputs, section: LiveSection) -> None:
    """Refuse a zoo that the scripts of a live run cannot share, or whose models have no weights."""
    if section.runner == "ray":
        raise InputError(
            "zoo: hosts of a Ray cluster cannot share the weights of one; use live.runner: "
            "subprocess or torchrun"
        )
    for name, workload in section.workloads.items():
        if not workload.higher_is_better:
            raise ScenarioError(
                "higher_is_better: found false, but a zoo takes the larger metric for the better "
                "one; report an accuracy, or leave out the zoo",
                loaded.document.where(("live", "workloads", name, "higher_is_better")),
            )
    assert inputs.jobs is not None  # checked by the schema
    columns = (inputs.jobs[name].to_pylist() for name in ("job_id", "workload"))
    for job_id, workload in zip(*columns, strict=True):
        model = inputs.models.of_job.get(job_id)
        if model is not None and workload not in inputs.trained:
            task = inputs.models.known[model].child.task
            raise InputError(
                f"zoo: nothing trains the model of job {job_id}, so that none could start from "
                f"its weights: say how {workload or task!r} is trained (live.workloads)"
            )


def _check_devices(
    loaded: LoadedScenario, section: LiveSection, devices: HostDevices, gpus: int
) -> None:
    """Refuse a cost that counts energy without a meter, and a host with too few GPUs."""
    eta = max(variant.rules.objective.eta for variant in loaded.variants.values())
    if devices.how == "absent" and eta > 0:
        raise EnvironmentLacks(
            f"nothing here measures energy, so that no cost with eta={eta:g} is known: say "
            "`objective: {eta: 0}`, which counts time alone, or see with `wattkeeper doctor` what "
            "is missing"
        )
    if section.runner != "ray" and 0 < devices.gpus < gpus:
        raise EnvironmentLacks(
            f"the scenario's cluster has {gpus} GPUs, this host shows {devices.gpus}: make it "
            "smaller (cluster), or use more hosts (live.runner: ray)"
        )


def _find_host_devices(control: Literal["auto", "off"]) -> HostDevices:
    from wattkeeper.live.devices import find_devices
    from wattkeeper.live.devices.energy_meter import EnergyMeter
    from wattkeeper.live.devices.power_limiter import PowerLimiter

    devices = find_devices()
    meter = EnergyMeter(devices, WallClock())
    meter.close()
    with PowerLimiter(devices, control) as limiter:
        return HostDevices(
            types=tuple(sorted({device.gpu_type for device in devices})),
            gpus=sum(device.limits is not None for device in devices),
            limits_w=_limits(devices, limiter.allowed),
            allowed=limiter.allowed,
            why=limiter.why,
            how=meter.how,
        )


def _limits(devices: Sequence[Device], allowed: bool) -> tuple[float, ...]:
    """Power limits that may be chosen, W, ascending; the one in force if none may be set."""
    common = common_range(devices)
    if common is None:
        return (1.0,)
    if not allowed:
        return (min(device.limit_w() for device in devices if device.limits is not None),)
    return power_limit_steps(*common)


def _options(
    name: str, workload: LiveWorkload, gpu_type: str, gpus: int, limits_w: tuple[float, ...]
) -> Options:
    sizes = tuple(sorted(workload.batch_sizes))
    return Options(
        key=f"{name}@{gpu_type}x{gpus}",
        gpu_type=gpu_type,
        gpus=gpus,
        batch_sizes=sizes,
        limits_w=(limits_w,) * len(sizes),
        default_batch_size=workload.default_batch_size,
        max_power_w=limits_w[-1],
        max_epochs=workload.max_epochs,
        samples_per_epoch=float(workload.samples_per_epoch or 0),
    )
