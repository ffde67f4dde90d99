"""Timelines are the same in whatever parts they are merged."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.world_views import collected
from tests.support.worlds import Setting, attempts, settings_of_worlds, timeline_of
from wattkeeper.sim.cluster_results.timeline import Timeline, timeline


@settings(max_examples=8)
@given(setting=settings_of_worlds(["simulated"]), points=st.integers(1, 5))
def test_parts_make_up_the_whole(setting: Setting, points: int) -> None:
    world = setting.run()
    whole = timeline_of(world)
    rows = attempts(world)
    submit_s = np.array([row.submit_time_s for row in rows])
    held = np.array([row.gpus * row.gpu_milli for row in rows])
    parts = [*timeline(world.recorder, setting.cluster, submit_s, held, points)]
    joined = Timeline(*map(np.concatenate, zip(*parts, strict=True)))
    for column, expected in zip(joined, whole, strict=True):
        assert column.tolist() == expected.tolist()
    assert (np.diff(joined.time_s) > 0).all()
    line = collected(setting, world).tables["timeline"]
    assert line["time_s"].to_pylist() == whole.time_s.tolist()
