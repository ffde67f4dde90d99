"""Shares of a power cap."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipelines import recorded_profile, repeat_stages
from wattkeeper.policies.pipeline.schedules import PipelineSchedule
from wattkeeper.policies.pipeline.task import PipelineTask
from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.planning.pipelines import cap_menu
from wattkeeper.policies.planning.sharing import Sharing, cheapest, share_out

STEEP = [SpeedPoint(0.4, 100, 100), SpeedPoint(0.9, 150, 150), SpeedPoint(1.0, 250, 250)]
FLAT = [SpeedPoint(0.9, 100, 100), SpeedPoint(0.95, 150, 150), SpeedPoint(1.0, 200, 200)]

menus = st.lists(
    st.lists(
        st.builds(
            SpeedPoint,
            st.floats(0.1, 1),
            st.floats(50, 400),
            st.floats(50, 400),
            st.sampled_from([0, 0, 600]),
            st.sampled_from([(), (), ((600,),)]),
        ),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize(
    ("sharing", "powers"),
    [("marginal", [150, 150]), ("proportional", [150, 150]), ("common", [150, 150])],
)
def test_all_power_is_granted_where_it_suffices(sharing: Sharing, powers: list[float]) -> None:
    assert [point.power_w for point in share_out([STEEP, FLAT], [1, 1], 310, sharing)] == powers
    assert [point.speed for point in share_out([STEEP, FLAT], [1, 1], 450, sharing)] == [1, 1]


def test_watts_go_where_they_give_most_speed() -> None:
    granted = share_out([STEEP, FLAT], [1, 1], 250, "marginal")
    assert [point.power_w for point in granted] == [150, 100]


@given(menus, st.floats(0, 2000), st.sampled_from(["marginal", "proportional", "common"]))
def test_the_cap_is_kept_where_it_can_be(
    jobs: list[list[SpeedPoint]], room_w: float, sharing: Sharing
) -> None:
    chosen = share_out(jobs, [1.0] * len(jobs), room_w, sharing)
    least_w = sum(cheapest(menu).power_w for menu in jobs)
    assert sum(point.power_w for point in chosen) <= max(room_w, least_w) + 1e-6
    assert all(point in menu for point, menu in zip(chosen, jobs, strict=True))


@given(menus, st.floats(0, 2000))
def test_by_gain_is_the_best_but_for_one_piece(jobs: list[list[SpeedPoint]], room_w: float) -> None:
    """No choice of points is better than what it grants, and one more piece of a hull."""
    fits = [
        sum(point.speed for point in choice)
        for choice in product(*jobs)
        if sum(point.power_w for point in choice) <= room_w
    ]
    chosen = share_out(jobs, [1.0] * len(jobs), room_w, "marginal")
    if fits:
        assert sum(point.speed for point in chosen) + 0.9 >= max(fits)


def test_a_watt_counts_by_the_weight_of_its_job() -> None:
    heavy = share_out([STEEP, FLAT], [1, 20], 300, "marginal")
    assert [point.power_w for point in heavy] == [100, 200]


@pytest.mark.parametrize(
    ("share", "gain", "proportional", "common"),
    [(0.9, 1.0, 0.996, 0.949), (0.85, 0.995, 0.983, 0.926), (0.8, 0.95, 0.943, 0.903)],
)
@pytest.mark.slow
def test_five_recorded_pipelines(
    shared: Path, share: float, gain: float, proportional: float, common: float
) -> None:
    """Mean speeds, weighted by GPUs, under a share of what they draw: shared/reference/perseus."""
    recorded = recorded_profile(shared)
    tasks = [
        PipelineTask(repeat_stages(recorded, stages), PipelineSchedule("1f1b", stages, batches))
        for stages, batches in ((4, 2), (4, 8), (4, 32), (8, 8), (8, 32))
    ]
    weights = [float(task.graph.stages) for task in tasks]
    most_w = sum(task.fastest.energy_j / task.fastest.time_s for task in tasks)

    def mean_speed(sharing: Sharing) -> float:
        points = share_out([cap_menu(task) for task in tasks], weights, share * most_w, sharing)
        assert sum(point.power_w for point in points) <= share * most_w
        speeds = zip(weights, points, strict=True)
        return sum(weight * point.speed for weight, point in speeds) / sum(weights)

    assert mean_speed("marginal") >= gain - 2e-3
    assert mean_speed("proportional") >= proportional - 2e-3
    assert mean_speed("common") == pytest.approx(common, abs=2e-3)
