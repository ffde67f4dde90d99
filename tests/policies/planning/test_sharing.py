"""Shares of a power cap."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattkeeper.policies.planning.hull import SpeedPoint
from wattkeeper.policies.planning.sharing import Sharing, cheapest, share_out

STEEP = [SpeedPoint(0.4, 100, 100), SpeedPoint(0.9, 150, 150), SpeedPoint(1.0, 250, 250)]
FLAT = [SpeedPoint(0.9, 100, 100), SpeedPoint(0.95, 150, 150), SpeedPoint(1.0, 200, 200)]

menus = st.lists(
    st.lists(
        st.builds(SpeedPoint, st.floats(0.1, 1), st.floats(50, 400), st.floats(50, 400)),
        min_size=1, max_size=5,
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("sharing", "powers"),
    [("marginal", [150, 150]), ("proportional", [150, 150]), ("common", [150, 150])],
)
def test_all_power_is_granted_where_it_suffices(sharing: Sharing, powers: list[float]) -> None:
    assert [point.power_w for point in share_out([STEEP, FLAT], 310, sharing)] == powers
    assert [point.speed for point in share_out([STEEP, FLAT], 450, sharing)] == [1, 1]


def test_watts_go_where_they_give_most_speed() -> None:
    assert [point.power_w for point in share_out([STEEP, FLAT], 250, "marginal")] == [150, 100]


@given(menus, st.floats(0, 2000), st.sampled_from(["marginal", "proportional", "common"]))
def test_the_cap_is_kept_where_it_can_be(
    jobs: list[list[SpeedPoint]], room_w: float, sharing: Sharing
) -> None:
    chosen = share_out(jobs, room_w, sharing)
    least_w = sum(cheapest(menu).power_w for menu in jobs)
    assert sum(point.power_w for point in chosen) <= max(room_w, least_w) + 1e-6
    assert all(point in menu for point, menu in zip(chosen, jobs, strict=True))


@given(menus, st.floats(0, 2000))
def test_by_gain_is_the_best_but_for_one_piece(jobs: list[list[SpeedPoint]], room_w: float) -> None:
    """No choice of points is better than what it grants, and one more piece of a hull."""
    fits = [
        sum(point.speed for point in choice) for choice in product(*jobs)
        if sum(point.power_w for point in choice) <= room_w
    ]  # fmt: skip
    chosen = share_out(jobs, room_w, "marginal")
    if fits:
        assert sum(point.speed for point in chosen) + 0.9 >= max(fits)
