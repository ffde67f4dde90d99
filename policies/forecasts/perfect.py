"""An oracle: the truth."""

from typing import ClassVar, Literal

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.errors import PolicyError
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal


class Perfect(Forecast):
    """See `PerfectConfig`."""

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The true values."""
        there = 0 if known.truth is None else len(known.truth)
        if known.truth is None or there < slots:
            raise PolicyError(
                f"the forecast 'perfect' needs {slots} true values from slot {known.slot} on; "
                f"there are {there}"
            )
        return known.truth[:slots]


class PerfectConfig(ForecastConfig):
    """The true values, which nobody knows: an oracle, to compare others with."""

    kind: Literal["perfect"] = "perfect"
    forecast = Perfect
    needs_foresight: ClassVar[bool] = True
    assumption: ClassVar[str] = "oracle"
