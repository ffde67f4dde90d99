"""Parts of a world subscribe to moments by the methods that they override."""

from __future__ import annotations

from wattkeeper.sim.engine.subscriber import MOMENTS, Moments, Subscriber


def test_every_method_is_a_moment_and_every_moment_a_list() -> None:
    methods = {name for name in vars(Subscriber) if not name.startswith("_")}
    assert methods == set(MOMENTS)
    assert all(getattr(Moments(), moment) == [] for moment in MOMENTS)


def test_a_part_is_called_at_the_moments_that_it_overrides_alone() -> None:
    class Beginner(Subscriber):
        def begin_run(self) -> None: ...

    moments, part = Moments(), Beginner()
    moments.add(part)
    assert [name for name in MOMENTS if getattr(moments, name)] == ["begin_run"]
    assert moments.begin_run == [part]
