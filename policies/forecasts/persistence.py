"""The present value holds."""

from typing import Literal

import numpy as np

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.forecasting import Forecast, ForecastConfig, KnownSignal


class Persistence(Forecast):
    """See `PersistenceConfig`."""

    def predict(self, known: KnownSignal, slots: int) -> Floats:
        """The present value in all slots."""
        return np.full(slots, known.values[-1])


class PersistenceConfig(ForecastConfig):
    """The present value holds for all slots to come."""

    kind: Literal["persistence"] = "persistence"
    forecast = Persistence
