"""Words of protocol tuples, of which journals have a digest."""

from wattkeeper.policies.points.views import Configuration, Knobs, Measurement


def test_words_are_what_they_were_without_clocks() -> None:
    knobs = Knobs(250.0, (100.0,), 1200)
    assert repr(knobs) == (
        "Knobs(power_limit_w=250.0, profile_w=(100.0,), clock_mhz=1200, plan=None, run='go', "
        "wake_s=inf)"
    )
    assert repr(Measurement(1.0, 2.0, 3.0)) == (
        "Measurement(power_limit_w=1.0, time_per_epoch_s=2.0, average_power_w=3.0)"
    )
    assert repr(Configuration(8)) == (
        "Configuration(batch_size=8, power_limit_w=None, cost_bound=inf, parent=None, query_s=0.0)"
    )


def test_words_name_clocks() -> None:
    assert repr(Knobs(profile_mhz=(1200,))).endswith("wake_s=inf, profile_mhz=(1200,))")
    assert repr(Measurement(1.0, 2.0, 3.0, 900)).endswith("average_power_w=3.0, clock_mhz=900)")
    assert repr(Configuration(8, clock_mhz=900)).endswith("query_s=0.0, clock_mhz=900)")
