"""The presenters of all kinds of workload."""

from typing import Final

from wattkeeper.policies.json_types import Json
from wattkeeper.scenarios.document.elastic import ElasticPresenter
from wattkeeper.scenarios.document.presenter import Presenter
from wattkeeper.scenarios.document.replayed import ReplayedPresenter
from wattkeeper.scenarios.document.search import SearchPresenter, TabularPresenter

PRESENTERS: Final[dict[str, Presenter]] = {
    "elastic": ElasticPresenter(),
    "ensemble": SearchPresenter(),
    "search": SearchPresenter(),
    "tabular": TabularPresenter(),
}
"""Of kinds whose jobs are not replayed one by one."""

REPLAYED: Final = ReplayedPresenter()


def find_presenter(scenario: Json) -> Presenter:
    """The presenter of the workload of a resolved scenario; of an unknown one, of replayed jobs."""
    return PRESENTERS.get(scenario["workload"]["kind"], REPLAYED)
