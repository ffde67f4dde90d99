"""Files of prices and intensities as services export them: ENTSO-E, Ember, Electricity Maps."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.support import damage
from tests.support.examples import examples
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.electricity.forms import Quantity, SeriesOptions
from wattkeeper.traces.electricity.readers import read_series
from wattkeeper.traces.electricity.series import Series
from wattkeeper.traces.limits import MOST_SLOTS

ROWS = (
    ("MTU (CET/CEST)", "Area", "Sequence", "Day-ahead Price (EUR/MWh)", "Intraday Price (EUR/MWh)"),
    ("26/10/2024 23:00:00 - 27/10/2024 00:00:00", "BZN|GR", "Without Sequence", "70.5", ""),
    ("27/10/2024 00:00:00 - 27/10/2024 01:00:00", "BZN|GR", "Without Sequence", "-3", ""),
    ("27/10/2024 01:00:00 - 27/10/2024 02:00:00", "BZN|GR", "Without Sequence", "40", ""),
)
WRAPPED = "".join(
    '"' + ",".join([first, *(f'""{text}""' for text in others)]) + '"\n' for first, *others in ROWS
)
EMBER = """\
Country,ISO3 Code,Datetime (UTC),Datetime (Local),Price (EUR/MWhe)
Austria,AUT,2024-01-01 00:00:00,2024-01-01 01:00:00,15.5
Austria,AUT,2024-01-01 01:00:00,2024-01-01 02:00:00,-2
Belgium,BEL,2024-01-01 00:00:00,2024-01-01 01:00:00,20
Belgium,BEL,2024-01-01 01:00:00,2024-01-01 02:00:00,30
"""
NAMESPACE = "urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:3"
Point = tuple[int, float | str]


def series_of(
    *points: Point,
    curve: str = "A03",
    resolution: str = "PT60M",
    sequence: str = "",
    start: str = "2024-10-26T22:00Z",
    end: str = "2024-10-27T02:00Z",
    area: str = "10YGR",
    currency: str = "EUR",
    value: str = "price.amount",
) -> str:
    mark = "classificationSequence_AttributeInstanceComponent.position"
    position = f"<{mark}>{sequence}</{mark}>\n" if sequence else ""
    rows = "".join(
        f"<Point>\n<position>{place}</position><{value}>{held}</{value}></Point>\n"
        for place, held in points
    )
    return (
        f"<TimeSeries>\n<mRID>1</mRID>\n<businessType>A62</businessType>\n"
        f'<in_Domain.mRID codingScheme="A01">{area}</in_Domain.mRID>\n'
        f"<currency_Unit.name>{currency}</currency_Unit.name>\n"
        f"<price_Measure_Unit.name>MWH</price_Measure_Unit.name>\n{position}"
        f"<curveType>{curve}</curveType>\n<Period>\n<timeInterval><start>{start}</start>"
        f"<end>{end}</end></timeInterval>\n<resolution>{resolution}</resolution>\n{rows}"
        "</Period>\n</TimeSeries>\n"
    )


def document(*series: str, root: str = "Publication_MarketDocument") -> str:
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<{root} xmlns="{NAMESPACE}">\n'
        f"<period.timeInterval><start>2024-10-26T22:00Z</start></period.timeInterval>\n"
        f"{''.join(series)}</{root}>\n"
    )


WHOLE = ((1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0))
Read = Callable[..., Series]
Refuse = Callable[..., str]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text as a file."""

    def run(text: str, quantity: Quantity = "price", **said: Any) -> Series:
        path = tmp_path / "export"
        path.write_text(text, encoding="utf-8")
        return read_series(path, quantity, SeriesOptions(**said))

    return run


@pytest.fixture
def refuse(read: Read, tmp_path: Path) -> Refuse:
    """The message for a text that is refused; it names the file."""

    def run(text: str, quantity: Quantity = "price", **said: Any) -> str:
        with pytest.raises(TraceError) as caught:
            read(text, quantity, **said)
        assert str(tmp_path / "export") in str(caught.value)
        return str(caught.value)

    return run


def starts(series: Series) -> list[str]:
    return [f"{datetime.fromtimestamp(second, UTC):%d %H:%M}" for second in series.start_s]


def test_each_line_of_an_export_of_entsoe_in_quotes(read: Read, refuse: Refuse) -> None:
    wrapped = read(WRAPPED)
    plain = read(WRAPPED.replace('"', ""))
    for series in (wrapped, plain):
        assert series.value == pytest.approx([0.0705, -0.003, 0.04])
        assert starts(series) == ["26 21:00", "26 22:00", "26 23:00"]
        assert (series.area, series.unit) == ("BZN|GR", "EUR/kWh")
    assert starts(read(WRAPPED.replace("\n", "\r\n"))) == starts(wrapped)
    short = WRAPPED.replace(',""Without Sequence"",""-3""', ',""-3""')
    assert_states(refuse(short), "line 3", "4 values, must have 5")
    assert_states(refuse(WRAPPED.replace("""70.5""", "x")), "line 2", "Day-ahead Price", "'x'")
    gap = "".join(line for line in WRAPPED.splitlines(keepends=True) if "-3" not in line)
    assert read(gap).end_s - read(gap).start_s[0] == 4 * 3600
    assert_states(refuse(WRAPPED + WRAPPED.splitlines()[1] + "\n"), "line 5", "overlap")


def test_a_zone_beside_the_clock_that_an_export_names(read: Read, refuse: Refuse) -> None:
    assert starts(read(WRAPPED, zone="Europe/Berlin")) == starts(read(WRAPPED))
    assert_states(refuse(WRAPPED, zone="UTC"), "`zone` must be left out", "'UTC'")
    assert_states(refuse(EMBER, area="AUT", zone="Europe/Vienna"), "states 'UTC'", "`zone`")


@pytest.mark.parametrize("area", ["Austria", "AUT"])
def test_prices_of_ember(read: Read, area: str) -> None:
    series = read(EMBER, area=area)
    assert series.value == pytest.approx([0.0155, -0.002])
    assert starts(series) == ["01 00:00", "01 01:00"]
    assert (series.unit, series.area) == ("EUR/kWh", area)
    local = {"time_column": "Datetime (Local)", "zone": "Europe/Vienna"}
    assert read(EMBER, area=area, **local).start_s.tolist() == series.start_s.tolist()


def test_an_area_of_any_table(read: Read, refuse: Refuse) -> None:
    assert_states(refuse(EMBER), "has 2 areas", "'Austria', 'Belgium'", "`area`")
    assert_states(refuse(EMBER, area="Mars"), "no area 'Mars'", "'Austria', 'Belgium'")
    own = EMBER.replace("Country,ISO3 Code", "site,hall").replace("(EUR/MWhe)", "")
    series = read(own, area="BEL", unit="EUR/MWhel", column="Price")
    assert series.value == pytest.approx([0.02, 0.03])
    one = "\n".join(line for line in EMBER.splitlines() if "Bel" not in line)
    assert read(one).area == "Austria"


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("time (UTC)", "UTC"),
        ("utc_timestamp", "UTC"),
        ("Time UTC", "UTC"),
        ("date_gmt", "UTC"),
        ("Time (UTC+1)", "+01:00"),
        ("Time (UTC-03:30)", "-03:30"),
        ("futc", ""),
        ("utcx", ""),
    ],
)
def test_the_zone_in_the_name_of_a_column(read: Read, refuse: Refuse, name: str, zone: str) -> None:
    text = f"{name},price\n2024-03-01 00:00,1\n2024-03-01 01:00,2\n"
    said = {"time_column": name, "unit": "EUR/kWh"}
    if not zone:
        assert_states(refuse(text, **said), "say its `zone`")
        return
    assert (
        read(text, **said).start_s.tolist()
        == read(text.replace("00,", f"00{zone.replace('UTC', 'Z')},"), **said).start_s.tolist()
    )
    assert_states(refuse(text, **said, zone="Asia/Tokyo"), "`zone` must be left out")


def test_a_zone_beside_offsets_moves_nothing_and_is_noted(read: Read) -> None:
    text = "time,price\n2024-03-01 00:00Z,1\n2024-03-01 03:00+02:00,2\n"
    series = read(text, unit="EUR/kWh", zone="Asia/Tokyo")
    assert starts(series) == ["01 00:00", "01 01:00"]
    assert_states(" ".join(series.notes), "offset", "Asia/Tokyo is not used")


def test_a_document_of_entsoe(read: Read) -> None:
    series = read(document(series_of(*WHOLE, curve="A01")))
    assert series.value == pytest.approx([0.01, 0.02, 0.03, 0.04])
    assert starts(series) == ["26 22:00", "26 23:00", "27 00:00", "27 01:00"]
    assert (series.unit, series.area) == ("EUR/kWh", "10YGR")
    sparse = read(document(series_of((1, 10), (3, "-5.5"))))
    assert sparse.value == pytest.approx([0.01, 0.01, -0.0055, -0.0055])
    assert sparse.end_s == series.end_s
    quarters = series_of((1, 1), (2, 2), resolution="PT15M", end="2024-10-26T23:00Z")
    assert read(document(quarters)).value == pytest.approx([0.001, 0.002, 0.002, 0.002])
    prefixed = document(series_of(*WHOLE)).replace("<", "<n:").replace("<n:/", "</n:")
    prefixed = prefixed.replace("<n:?", "<?").replace("xmlns=", "xmlns:n=")
    assert read(prefixed).value.tolist() == series.value.tolist()


def test_auctions_and_areas_of_a_document(read: Read, refuse: Refuse) -> None:
    """The first auction is read, whatever the order; without a number, it is the first."""
    later = series_of((1, 99), sequence="2")
    for first in (series_of(*WHOLE, sequence="1"), series_of(*WHOLE)):
        series = read(document(later, first))
        assert series.value == pytest.approx([0.01, 0.02, 0.03, 0.04])
        assert_states(" ".join(series.notes), "'sequence 1' is read, not 'sequence 2'")
    assert_states(" ".join(read(document(later)).notes), "'sequence 2' is read")
    tenth = read(document(series_of((1, 99), sequence="10"), later))
    assert_states(" ".join(tenth.notes), "'sequence 2' is read, not 'sequence 10'")
    other = series_of((1, 99), area="10YFR")
    assert_states(refuse(document(series_of(*WHOLE), other)), "has 2 areas", "'10YFR', '10YGR'")
    assert read(document(series_of(*WHOLE), other), area="10YFR").value[0] == pytest.approx(0.099)


HOUR = {"start": "2025-09-30T21:00Z", "end": "2025-09-30T22:00Z"}
QUARTERS = {"start": "2025-09-30T22:00Z", "end": "2025-09-30T23:00Z", "resolution": "PT15M"}


def test_a_market_goes_from_hours_to_quarters_of_an_hour(read: Read, refuse: Refuse) -> None:
    four = series_of((1, 1), (2, 2), (3, 3), (4, 4), **QUARTERS)
    days = [series_of((1, 9), **HOUR), four]
    for order in (days, days[::-1]):
        series = read(document(*order))
        assert starts(series) == ["30 21:00", "30 22:00", "30 22:15", "30 22:30", "30 22:45"]
        assert series.value == pytest.approx([0.009, 0.001, 0.002, 0.003, 0.004])
        assert series.end_s - series.start_s[-1] == 900
        assert_states(" ".join(series.notes), "slots of 900 and 3600 s")
    back = {"start": "2025-09-30T23:00Z", "end": "2025-10-01T01:00Z"}
    series = read(document(*days, series_of((1, 5), **back)))
    assert series.end_s - series.start_s[-1] == 3600


@pytest.mark.parametrize(
    ("start", "end", "fact"),
    [
        ("2025-09-30T23:15Z", "2025-10-01T01:15Z", "leaves a gap: 1800 s after"),
        ("2025-09-30T22:50Z", "2025-10-01T00:50Z", "is uneven: 300 s after"),
        ("2025-09-30T22:45Z", "2025-10-01T00:45Z", "overlap"),
    ],
)
def test_slots_of_several_lengths_have_no_gaps(
    refuse: Refuse, start: str, end: str, fact: str
) -> None:
    four = series_of((1, 1), **QUARTERS)
    assert_states(refuse(document(four, series_of((1, 5), start=start, end=end))), fact)
    hour = series_of((1, 9), **HOUR)
    late = series_of((1, 1), **QUARTERS | {"start": "2025-09-30T22:30Z"})
    assert_states(refuse(document(hour, late)), "leaves a gap: 5400 s after")


def test_days_of_a_document_follow_each_other(read: Read, refuse: Refuse) -> None:
    next_day = {"start": "2024-10-27T02:00Z", "end": "2024-10-27T04:00Z"}
    assert len(read(document(series_of(*WHOLE), series_of((1, 1), **next_day))).value) == 6
    gap = {"start": "2024-10-27T03:00Z", "end": "2024-10-27T04:00Z"}
    said = refuse(document(series_of(*WHOLE), series_of((1, 1), **gap)))
    assert_states(said, "line 34", "leaves a gap: 7200 s", "`fill: previous`")
    assert_states(refuse(document(series_of(*WHOLE), series_of(*WHOLE))), "line", "overlap")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (document(series_of(*WHOLE, (3, 1.0))), ("line 22", "repeats position 3 of line 18")),
        (document(series_of(*WHOLE, (5, 1.0))), ("line", "position is '5', must be 1 to 4")),
        (document(series_of((2, 1.0))), ("line 14", "position 1 has no point", "A03")),
        (document(series_of((1, 1), (3, 1), curve="A01")), ("line 14", "position 2 has no point")),
        (document(series_of(*WHOLE, curve="A05")), ("curveType is 'A05', must be A01 or A03",)),
        (document(series_of(*WHOLE, resolution="P1D")), ("resolution is 'P1D'", "PT60M")),
        (document(series_of(*WHOLE, resolution="PT0M")), ("resolution is 'PT0M'",)),
        (document(series_of(*WHOLE, resolution="PT7M")), ("no whole number of slots of 420 s",)),
        (document(series_of(*WHOLE, start="2024-10-26")), ("start", "'2024-10-26'")),
        (document(series_of(*WHOLE, end="x")), ("end of the interval is 'x'",)),
        (document(series_of((1, "ten"), (2, 1))), ("line 14", "price.amount is 'ten'")),
        (document(series_of(*WHOLE), series_of(*WHOLE, currency="PLN")), ("PLN/MWh", "EUR")),
        (
            document(series_of(*WHOLE, value="quantity"), root="GL_MarketDocument"),
            ("quantity", "no price"),
        ),
        (document(series_of(resolution="PT1M", end="2190-10-27T02:00Z")), (f"{MOST_SLOTS:,}",)),
        (
            document(root="Acknowledgement_MarketDocument").replace(
                "</Ack", "<Reason><code>999</code><text>No matching data</text></Reason></Ack"
            ),
            ("has no values: No matching data",),
        ),
        (document(), ("has no values",)),
        ("<html><body/></html>", ("line 1", "'html'", "Publication_MarketDocument")),
        (document(series_of(*WHOLE))[:-40], ("line", "is no valid XML")),
        (document("<a>" * 50 + "</a>" * 50), ("more than 32",)),
        (
            '<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "aaaa">]>\n'
            + document(series_of(*WHOLE)),
            ("line 2", "document type declaration"),
        ),
    ],
)
def test_wrong_documents(refuse: Refuse, text: str, facts: tuple[str, ...]) -> None:
    assert_states(refuse(text), *facts)


def test_documents_have_no_intensities(refuse: Refuse, read: Read) -> None:
    assert_states(refuse(document(series_of(*WHOLE)), "carbon"), "EUR/MWh", "no carbon")
    assert read(document(series_of(*WHOLE)), "value").value.tolist() == [10, 20, 30, 40]


HISTORY: dict[str, Any] = {
    "zone": "DE",
    "temporalGranularity": "hourly",
    "history": [
        {
            "zone": "DE",
            "carbonIntensity": 302,
            "datetime": "2024-04-25T18:00:00.000Z",
            "updatedAt": "2024-04-25T20:00:00.000Z",
            "emissionFactorType": "lifecycle",
            "isEstimated": True,
            "estimationMethod": "X",
        },
        {
            "zone": "DE",
            "carbonIntensity": 310.5,
            "datetime": "2024-04-25T19:00:00.000Z",
            "emissionFactorType": "lifecycle",
            "isEstimated": False,
        },
    ],
}
PRICES: dict[str, Any] = {
    "zone": "FR",
    "data": [
        {"datetime": "2024-04-25T18:00:00.000Z", "value": 63.24, "unit": "EUR/MWh"},
        {"datetime": "2024-04-25T19:00:00.000Z", "value": -1, "unit": "EUR/MWh"},
    ],
}


def test_a_history_of_electricity_maps(read: Read, refuse: Refuse) -> None:
    series = read(json.dumps(HISTORY), "carbon")
    assert series.value.tolist() == [302, 310.5]
    assert starts(series) == ["25 18:00", "25 19:00"]
    assert (series.unit, series.kind, series.area) == ("g/kWh", "average", "DE")
    assert_states(series.notes[0], "Electricity Maps", "lifecycle", "1 values are estimated")
    bare = {
        "zone": "DE",
        "history": [
            {"datetime": point["datetime"], "carbonIntensity": point["carbonIntensity"]}
            for point in HISTORY["history"]
        ],
    }
    assert read(json.dumps(bare), "carbon").value.tolist() == [302, 310.5]
    ranged = {"data": HISTORY["history"]}
    assert read(json.dumps(ranged), "carbon").value.tolist() == [302, 310.5]
    assert read(json.dumps(HISTORY["history"]), "carbon").value.tolist() == [302, 310.5]
    assert_states(refuse(json.dumps(HISTORY), "carbon", kind="marginal"), "`kind`")
    assert_states(refuse(json.dumps(HISTORY), "carbon", unit="kg/kWh"), "`unit`", "g/kWh")
    assert_states(refuse(json.dumps(HISTORY)), "carbonIntensity", "no price")


def test_prices_of_electricity_maps(read: Read, refuse: Refuse) -> None:
    series = read(json.dumps(PRICES))
    assert series.value == pytest.approx([0.06324, -0.001])
    assert (series.unit, series.kind, series.area) == ("EUR/kWh", "", "FR")
    assert_states(refuse(json.dumps(PRICES), "carbon"), "EUR/MWh", "no carbon")
    mixed = json.dumps(PRICES).replace("EUR", "PLN", 1)
    assert_states(refuse(mixed), "row 2", "'EUR/MWh'", "'PLN/MWh' in row 1")
    assert_states(refuse(json.dumps(PRICES).replace("unit", "Unit")), "`unit` must be")


def test_wrong_answers_of_electricity_maps(read: Read, refuse: Refuse) -> None:
    def alter(**keys: Any) -> str:
        points = [{**point} for point in HISTORY["history"]]
        third = {**points[1], "datetime": "2024-04-25T20:00:00.000Z", **keys}
        return json.dumps({**HISTORY, "history": [*points, third]})

    assert len(read(alter(), "carbon").value) == 3
    for keys, facts in (
        ({"datetime": "2024-04-25T19:00:00.000Z"}, ("row 3", "row 2", "overlap")),
        ({"datetime": "2024-04-26T20:00:00.000Z"}, ("row 3", "gap")),
        ({"datetime": "soon"}, ("row 3", "datetime is 'soon'")),
        ({"carbonIntensity": "many"}, ("row 3", "carbonIntensity is 'many'")),
        ({"carbonIntensity": -1}, ("row 3", "'-1'")),
        ({"emissionFactorType": "direct"}, ("row 3", "'direct'", "'lifecycle' in row 1")),
        ({"value": 1}, ("carbonIntensity and value",)),
    ):
        assert_states(refuse(alter(**keys), "carbon"), *facts)
    two = json.dumps(
        [
            HISTORY,
            {
                **HISTORY,
                "zone": "FR",
                "history": [{**point, "zone": "FR"} for point in HISTORY["history"]],
            },
        ]
    )
    assert_states(refuse(two, "carbon"), "has 2 areas", "'DE', 'FR'")
    assert read(two, "carbon", area="FR").area == "FR"
    assert_states(refuse('{"zone": "DE", "history": []}', "carbon"), "no rows")
    assert_states(refuse('{"history": [1]}', "carbon"), "WattTime", "Electricity Maps")
    both = [HISTORY, {"data": [{"point_time": "2024-05-01T00:00Z", "value": 1}]}]
    assert_states(refuse(json.dumps(both), "carbon"), "mixes")


EXPORTS: dict[str, tuple[str, Quantity, str]] = {
    "document.xml": (
        document(series_of(*WHOLE), series_of((1, 5.0), (2, 6.0), sequence="2")),
        "price",
        "",
    ),
    "wrapped.csv": (WRAPPED, "price", ""),
    "ember.csv": (EMBER, "price", "AUT"),
    "history.json": (json.dumps(HISTORY), "carbon", ""),
    "prices.json": (json.dumps(PRICES), "price", ""),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_an_altered_export_is_read_or_refused(name: str, tmp_path: Path) -> None:
    rng, path, read = Random(44), tmp_path / name, 0
    text, quantity, area = EXPORTS[name]
    for _ in range(examples(1000)):
        path.write_text(text, encoding="utf-8")
        told = damage.alter_bytes(path, rng)
        said = SeriesOptions(area=area, fill=rng.choice((None, "previous")))
        message = check(path, quantity, said)
        assert not message or name in message, told
        read += not message
    assert 0 < read < examples(1000)


def check(path: Path, quantity: Quantity, said: SeriesOptions) -> str:
    """Read a file whose series must be usable; the message if it is refused."""
    try:
        series = read_series(path, quantity, said)
    except TraceError as error:
        return str(error)
    assert np.isfinite(series.value).all()
    assert (np.diff(np.append(series.start_s, series.end_s)) > 0).all()
    return ""


@pytest.mark.parametrize("encoding", ["utv-8", "utf-7", "big5", "utf-16"])
def test_an_encoding_that_is_not_read_is_refused(refuse: Refuse, encoding: str) -> None:
    text = document(series_of(*WHOLE)).replace('"utf-8"', f'"{encoding}"')
    assert "Traceback" not in refuse(text)
