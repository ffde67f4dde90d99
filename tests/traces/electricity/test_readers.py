"""Files of prices and carbon intensities: their forms, and what is refused."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import damage
from tests.support.messages import assert_states
from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.electricity.forms import Quantity, SeriesOptions, convert_unit
from wattkeeper.traces.electricity.readers import read_series
from wattkeeper.traces.electricity.series import Series
from wattkeeper.traces.limits import MOST_BYTES, MOST_SLOTS

MAPS = """\
Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),\
Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy percentage (CFE%),\
Renewable energy percentage (RE%),Data source,Data estimated,Data estimation method
2024-01-01 00:00:00,Germany,Germany,DE,230.43,286.46,58.57,52.83,entsoe.eu,false,
2024-01-01 01:00:00,Germany,Germany,DE,231.5,290,58.57,52.83,entsoe.eu,true,X
2024-01-01 02:00:00,Germany,Germany,DE,240,300.5,58.57,52.83,entsoe.eu,false,
"""
OLD_MAPS = """\
Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),\
Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,\
Data Estimated,Data Estimation Method
2022-01-01 00:00:00,France,France,FR,40,60,90,20,rte,false,
2022-02-01 00:00:00,France,France,FR,50,70,90,20,rte,false,
2022-03-01 00:00:00,France,France,FR,30,50,90,20,rte,false,
"""
WATTTIME = """\
point_time,value
2024-05-01 00:00:00+00:00,870.0
2024-05-01 00:05:00+00:00,1000.0
2024-05-01 00:10:00+00:00,0.0
"""
ANSWER: dict[str, Any] = {
    "data": [
        {"point_time": "2024-05-01T00:00:00+00:00", "value": 870, "imputed_data_used": False},
        {"point_time": "2024-05-01T00:05:00+00:00", "value": 1000.0},
    ],
    "meta": {
        "data_point_period_seconds": 300,
        "region": "CAISO_NORTH",
        "signal_type": "co2_moer",
        "units": "lbs_co2_per_mwh",
        "model": {"date": "2023-03-01"},
        "warnings": [],
    },
}
ENTSOE = """\
"MTU (CET/CEST)","Area","Sequence","Day-ahead Price (EUR/MWh)","Intraday Period (CET/CEST)",\
"Intraday Price (EUR/MWh)"
"27/10/2024 01:00:00 - 27/10/2024 02:00:00","BZN|DE-LU","Sequence Sequence 1","50.5","",""
"27/10/2024 01:00:00 - 27/10/2024 02:00:00","BZN|DE-LU","Sequence Sequence 2","51.5","",""
"27/10/2024 02:00:00 - 27/10/2024 02:00:00","BZN|DE-LU","Sequence Sequence 1","-3","",""
"27/10/2024 02:00:00 - 27/10/2024 03:00:00","BZN|DE-LU","Sequence Sequence 1","40","",""
"27/10/2024 03:00:00 - 27/10/2024 04:00:00","BZN|DE-LU","Sequence Sequence 1","30","",""
"27/10/2024 04:00:00 - 27/10/2024 05:00:00","BZN|DE-LU","Sequence Sequence 1","","",""
"""
MARKED = """\
MTU (CET/CEST),Area,Day-ahead Price (EUR/MWh)
27/10/2024 01:30:00 (CEST) - 27/10/2024 02:00:00 (CEST),BZN|FR,1
27/10/2024 02:00:00 (CEST) - 27/10/2024 02:30:00 (CEST),BZN|FR,2
27/10/2024 02:30:00 (CEST) - 27/10/2024 02:00:00 (CET),BZN|FR,3
27/10/2024 02:00:00 (CET) - 27/10/2024 02:30:00 (CET),BZN|FR,4
27/10/2024 02:30:00 (CET) - 27/10/2024 03:00:00 (CET),BZN|FR,5
"""
OLD_ENTSOE = """\
MTU (CET),Day-ahead Price [EUR/MWh],Currency,BZN|DK1
26.03.2023 01:00 - 26.03.2023 02:00,70.1,EUR,
26.03.2023 02:00 - 26.03.2023 03:00,n/e,,
26.03.2023 03:00 - 26.03.2023 04:00,80,EUR,
"""
PLAIN = "time,price\n2024-03-01 00:00,0.2\n2024-03-01 00:15,0.3\n2024-03-01 00:30,0.4\n"
UTC_PRICE = SeriesOptions(unit="EUR/kWh", zone="UTC")

Read = Callable[..., Series]
Refuse = Callable[..., str]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text as a file."""

    def run(
        text: str,
        said: SeriesOptions | None = None,
        *,
        name: str = "s.csv",
        quantity: Quantity = "price",
    ) -> Series:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read_series(path, quantity, said)

    return run


@pytest.fixture
def refuse(read: Read, tmp_path: Path) -> Refuse:
    """The message for a text that is refused; it names the file."""

    def run(text: str, said: SeriesOptions | None = None, **rest: Any) -> str:
        with pytest.raises(TraceError) as caught:
            read(text, said, **rest)
        assert str(tmp_path) in str(caught.value)
        return str(caught.value)

    return run


def starts(series: Series) -> list[str]:
    return [f"{datetime.fromtimestamp(second, UTC):%d %H:%M}" for second in series.start_s]


def lines(times: list[str], header: str = "time,price") -> str:
    return "\n".join([header, *(f"{time},{n}" for n, time in enumerate(times, 1)), ""])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("", [286.46, 290, 300.5]),
        ("Life cycle", [286.46, 290, 300.5]),
        ("direct", [230.43, 231.5, 240]),
        ("Carbon intensity gCO₂eq/kWh (direct)", [230.43, 231.5, 240]),
    ],
)
def test_electricity_maps(read: Read, column: str, values: list[float]) -> None:
    series = read(MAPS, SeriesOptions(column=column), quantity="carbon")
    assert series.value.tolist() == values
    assert (series.unit, series.kind, series.area) == ("g/kWh", "average", "DE")
    assert starts(series) == ["01 00:00", "01 01:00", "01 02:00"]
    assert series.end_s - series.start_s[-1] == 3600
    assert_states(
        series.notes[0],
        "Electricity Maps",
        "direct" if column[-3:] in ("ect", "ct)") else "life cycle",
    )


def test_an_old_export_of_electricity_maps_by_month(read: Read) -> None:
    series = read(OLD_MAPS, quantity="carbon")
    assert series.value.tolist() == [60, 70, 50]
    assert starts(series) == ["01 00:00"] * 3
    assert series.end_s - series.start_s[-1] in (28 * 86400, 31 * 86400)


def test_watttime(read: Read) -> None:
    series = read(WATTTIME, name="CAISO_NORTH_co2_moer_2024-05-01.csv", quantity="carbon")
    assert series.value == pytest.approx([394.6254, 453.59237, 0])
    assert (series.unit, series.kind) == ("g/kWh", "marginal")
    assert_states(" ".join(series.notes), "co2_moer", "lbs/MWh", "g/kWh")
    average = read(WATTTIME, name="CAISO_NORTH_co2_aoer_2024.csv", quantity="carbon")
    assert average.kind == "average"
    unnamed = read(WATTTIME, quantity="carbon")
    assert unnamed.kind == "marginal"
    assert_states(unnamed.notes[0], "does not name its signal")
    said = SeriesOptions(unit="kg/MWh", kind="average")
    assert read(WATTTIME, said, quantity="carbon").value.tolist() == [870, 1000, 0]


def test_answers_of_watttime(read: Read) -> None:
    later = {**ANSWER, "data": [{"point_time": "2024-05-01T00:10:00Z", "value": 0}]}
    one = read(json.dumps(ANSWER), name="a.json", quantity="carbon")
    assert one.value == pytest.approx([394.6254, 453.59237])
    assert (one.kind, one.area) == ("marginal", "CAISO_NORTH")
    both = read(json.dumps([later, ANSWER]), name="a.json", quantity="carbon")
    assert both.value == pytest.approx([394.6254, 453.59237, 0])


def test_day_ahead_prices_of_entsoe(read: Read) -> None:
    series = read(ENTSOE)
    assert series.value == pytest.approx([0.0505, -0.003, 0.04, 0.03])
    assert (series.unit, series.kind, series.area) == ("EUR/kWh", "", "BZN|DE-LU")
    assert starts(series) == ["26 23:00", "27 00:00", "27 01:00", "27 02:00"]
    assert_states(" ".join(series.notes), "Sequence 1", "1 lines have no value", "EUR/MWh")
    marked = read(MARKED)
    assert marked.value == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.005])
    assert starts(marked) == ["26 23:30", "27 00:00", "27 00:30", "27 01:00", "27 01:30"]
    old = read(OLD_ENTSOE)
    assert starts(old) == ["26 00:00", "26 01:00"]
    utc = MARKED.replace("CET/CEST", "UTC").replace(" (CEST)", "").replace(" (CET)", "")
    utc = utc.partition("27/10/2024 02:00:00 - 27/10/2024 02:30:00,BZN|FR,4")[0]
    assert starts(read(utc)) == ["27 01:30", "27 02:00", "27 02:30"]


@pytest.mark.parametrize(
    ("text", "unit", "values"),
    [
        (PLAIN, "EUR/kWh", [0.2, 0.3, 0.4]),
        (PLAIN, "EUR/MWh", [0.0002, 0.0003, 0.0004]),
        (PLAIN.replace("price", "price [USD/MWh]"), "", [0.0002, 0.0003, 0.0004]),
        (PLAIN.replace(",", ";"), "EUR/kWh", [0.2, 0.3, 0.4]),
        (PLAIN.replace(",", "\t").replace("\n", "\r\n"), "$/kWh", [0.2, 0.3, 0.4]),
        ("\ufeff" + PLAIN, "€/MWh", [0.0002, 0.0003, 0.0004]),
    ],
)
def test_a_table_of_times_and_prices(read: Read, text: str, unit: str, values: list[float]) -> None:
    series = read(text, SeriesOptions(unit=unit, zone="UTC"))
    assert series.value == pytest.approx(values)
    assert series.unit == f"{(unit or 'USD/MWh').split('/')[0]}/kWh"
    assert starts(series) == ["01 00:00", "01 00:15", "01 00:30"]
    assert series.end_s - series.start_s[0] == 2700


def test_compressed_and_parquet_files_read_as_plain_ones(read: Read, tmp_path: Path) -> None:
    plain = read(PLAIN, UTC_PRICE)
    path = tmp_path / "s.csv.gz"
    path.write_bytes(gzip.compress(PLAIN.encode()))
    first = datetime(2024, 3, 1)
    stamps = [first + timedelta(minutes=15 * n) for n in range(3)]
    others = [read_series(path, "price", UTC_PRICE)]
    for kind in (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Berlin")):
        path = tmp_path / "s.parquet"
        times = pa.array(stamps, pa.timestamp("us")).cast(pa.timestamp(kind.unit, kind.tz))
        table = pa.table({"when": times, "price": [0.2, 0.3, 0.4], "text": ["a", "b", "c"]})
        pq.write_table(table, path)
        others.append(
            read_series(
                path,
                "price",
                SeriesOptions(unit="EUR/kWh", time_column="when", zone="" if kind.tz else "UTC"),
            )
        )
    for other in others:
        assert other.value.tolist() == plain.value.tolist()
        assert other.start_s.tolist() == plain.start_s.tolist()


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        ("UTC", "01 00:00"),
        ("+01:00", "31 23:00"),
        ("-0530", "01 05:30"),
        ("Z", "01 00:00"),
        ("Europe/Berlin", "31 22:00"),
        ("America/New_York", "01 04:00"),
    ],
)
def test_zones_of_times_without_an_offset(read: Read, zone: str, first: str) -> None:
    series = read(lines(["2024-06-01", "2024-06-01T01:00"]), UTC_PRICE._replace(zone=zone))
    assert starts(series)[0] == first
    offset = read(lines(["2024-06-01T00:00+02:00", "2024-06-01T01:00+02:00"]), UTC_PRICE)
    assert starts(offset)[0] == "31 22:00"


@pytest.mark.parametrize(
    ("zone", "times", "bad"),
    [
        ("Europe/Berlin", ["2024-03-31 01:00", "2024-03-31 02:00", "2024-03-31 03:00"], (3,)),
        ("Europe/Berlin", ["2024-10-27 01:00", "2024-10-27 02:00", "2024-10-27 03:00"], (3,)),
        ("America/New_York", ["2024-11-03 00:30", "2024-11-03 01:30", "2024-11-03 01:30"], (3, 4)),
    ],
)
def test_times_that_clocks_show_twice_or_never_are_refused(
    refuse: Refuse, zone: str, times: list[str], bad: tuple[int, ...]
) -> None:
    message = refuse(lines(times), UTC_PRICE._replace(zone=zone))
    for line in bad:
        assert_states(message, f"line {line}", f"time is {times[line - 2]}", zone, "offset")
    assert len(message.splitlines()) == len(bad)


def test_a_year_of_local_hours_needs_only_the_offset_of_the_doubtful_ones(read: Read) -> None:
    first = datetime(2024, 3, 30, tzinfo=UTC)
    hours = [first + timedelta(hours=n) for n in range(24 * 220)]
    rows = []
    for hour in hours:
        summer = (
            datetime(2024, 3, 31, 1, tzinfo=UTC) <= hour < datetime(2024, 10, 27, 1, tzinfo=UTC)
        )
        local = f"{hour + timedelta(hours=2 if summer else 1):%Y-%m-%d %H:%M}"
        is_twice = local == "2024-10-27 02:00"
        rows.append(local + (("+02:00" if summer else "+01:00") if is_twice else ""))
    series = read(lines(rows), UTC_PRICE._replace(zone="Europe/Berlin"))
    assert series.start_s.tolist() == [hour.timestamp() for hour in hours]
    daily = read(
        lines(["2024-03-29", "2024-03-30", "2024-03-31", "2024-04-01", "2024-04-02"]),
        UTC_PRICE._replace(zone="Europe/Berlin"),
    )
    assert np.diff(daily.start_s).tolist() == [86400, 86400, 82800, 86400]


def test_a_stamp_at_the_end_of_its_slot(read: Read) -> None:
    series = read(PLAIN, UTC_PRICE._replace(stamp="end"))
    assert starts(series) == ["29 23:45", "01 00:00", "01 00:15"]
    assert series.end_s == datetime(2024, 3, 1, 0, 30, tzinfo=UTC).timestamp()
    assert_states(" ".join(series.notes), "end of slots of 900 s")


GAP = lines([f"2024-03-01 {hour:02}:00" for hour in (0, 1, 2, 5, 6)])


def test_a_gap_is_refused_or_filled_and_counted(read: Read, refuse: Refuse) -> None:
    message = refuse(GAP, UTC_PRICE)
    assert_states(
        message, "line 5", "gap: 10800 s after line 4 (2024-03-01 02:00:00Z)", "3600 s", "fill"
    )
    filled = read(GAP, UTC_PRICE._replace(fill="previous"))
    assert starts(filled) == ["01 00:00", "01 01:00", "01 02:00", "01 05:00", "01 06:00"]
    assert_states(" ".join(filled.notes), "1 gaps, 2 hours")
    ends = read(GAP, UTC_PRICE._replace(fill="previous", stamp="end"))
    assert starts(ends) == ["29 23:00", "01 00:00", "01 01:00", "01 04:00", "01 05:00"]
    empty = GAP.replace("02:00,3", "02:00,")
    assert_states(refuse(empty, UTC_PRICE), "line 5", "gap: 14400 s after line 3")
    assert_states(
        " ".join(read(empty, UTC_PRICE._replace(fill="previous")).notes),
        "1 lines have no value in price",
        "3 hours",
    )


def test_uneven_steps_and_overlaps(read: Read, refuse: Refuse) -> None:
    tariff = lines(["2024-03-01 00:00", "2024-03-01 06:00", "2024-03-01 22:00", "2024-03-02 06:00"])
    assert_states(refuse(tariff, UTC_PRICE), "line 4", "line 5", "fill")
    held = read(tariff, UTC_PRICE._replace(fill="previous"))
    assert np.diff(held.start_s).tolist() == [21600, 57600, 28800]
    shorter = lines(
        ["2024-03-01 00:00", "2024-03-01 01:00", "2024-03-01 02:00", "2024-03-01 02:10"]
    )
    assert_states(refuse(shorter, UTC_PRICE), "line 5", "600 s after line 4", "3600 s are usual")
    assert_states(refuse(shorter, UTC_PRICE._replace(fill="previous", stamp="end")), "line 5")
    twice = lines(["2024-03-01 00:00", "2024-03-01 01:00", "2024-03-01 01:00"])
    for said in (UTC_PRICE, UTC_PRICE._replace(fill="previous")):
        assert_states(refuse(twice, said), "line 4", "line 3 (2024-03-01 01:00:00Z)", "overlap")
    assert_states(refuse(lines(["2024-03-01"] * 3), UTC_PRICE), "line 3", "line 4", "overlap")


def test_rows_out_of_order_are_sorted_and_said(read: Read) -> None:
    series = read(lines(["2024-03-01 02:00", "2024-03-01 01:00", "2024-03-01 00:00"]), UTC_PRICE)
    assert series.value.tolist() == [3, 2, 1]
    assert_states(" ".join(series.notes), "sorted")


def test_what_a_file_does_not_state_must_be_said(refuse: Refuse) -> None:
    assert_states(refuse(PLAIN), "'price'", "`unit`", "EUR/MWh")
    zone = refuse(PLAIN, SeriesOptions(unit="EUR/kWh"))
    assert_states(zone, "line 2", "2024-03-01 00:00:00", "`zone`", "Europe/Berlin")
    carbon = PLAIN.replace("price", "carbon_intensity")
    both = refuse(carbon, quantity="carbon")
    assert_states(both, "`unit`", "lb/MWh", "`kind`", "average or marginal", "line 2", "`zone`")
    wrong = refuse(carbon, SeriesOptions(unit="EUR/MWh", zone="Mars"), quantity="carbon")
    assert_states(wrong, "`unit`", "`kind`", "`zone` 'Mars'")
    wide = PLAIN.replace("time,price", "a,b")
    assert_states(refuse(wide), "`time_column`", "'a', 'b'")
    three = "time,x,y\n2024-03-01,1,2\n2024-03-02,1,2\n"
    assert_states(refuse(three), "`column`", "'x', 'y'")
    areas = MAPS.replace("DE,240", "FR,240")
    assert_states(refuse(areas, quantity="carbon"), "2 areas", "`area`", "'DE'", "'FR'")
    assert_states(refuse(MAPS, SeriesOptions(area="PL"), quantity="carbon"), "'PL'", "'DE'")
    assert_states(refuse(PLAIN, UTC_PRICE._replace(area="PL")), "'PL'", "none")


@pytest.mark.parametrize(
    ("text", "said", "key"),
    [
        (MAPS, SeriesOptions(unit="kg/kWh"), "`unit`"),
        (MAPS, SeriesOptions(kind="marginal"), "`kind`"),
        (MAPS, SeriesOptions(zone="Europe/Berlin"), "`zone`"),
        (MAPS, SeriesOptions(column="Data source"), "`column`"),
        (MAPS, SeriesOptions(time_column="Country"), "`time_column`"),
        (WATTTIME, SeriesOptions(column="point_time"), "`column`"),
        (ENTSOE, SeriesOptions(unit="USD/MWh"), "`unit`"),
        (ENTSOE, SeriesOptions(kind="average"), "`kind`"),
    ],
)
def test_what_contradicts_a_file_is_refused(
    refuse: Refuse, text: str, said: SeriesOptions, key: str
) -> None:
    quantity = "price" if text is ENTSOE else "carbon"
    assert_states(refuse(text, said, quantity=quantity), key)


def test_the_same_unit_in_other_words_is_no_contradiction(read: Read) -> None:
    series = read(
        json.dumps(ANSWER),
        SeriesOptions(unit="lb/MWh", kind="marginal", zone="UTC"),
        name="a.json",
        quantity="carbon",
    )
    assert series.value == pytest.approx([394.6254, 453.59237])


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", ("empty",)),
        ("time,price\n", ("no rows",)),
        ("\n\n", ("empty",)),
        ("time,price\n2024-03-01,1\n", ("fewer than two",)),
        ("time,price\n2024-03-01,x\n2024-03-02,1\n", ("line 2", "price is 'x'", "finite number")),
        ("time,price\n2024-03-01,1\n2024-03-02,inf\n", ("line 3", "price is 'inf'")),
        ("time,price\n2024-03-01,1\n2024-03-02,-1e10\n", ("line 3", "price is '-1e10'", "1e+09")),
        (
            "time,price\n2024-13-01,1\n2024-03-02,1\n",
            ("line 2", "time is '2024-13-01'", "2020-01-31"),
        ),
        ("time,price\n03/01/2024,1\n2024-03-02,1\n", ("line 2", "time is '03/01/2024'")),
        ("time,price\n1024-03-01,1\n2024-03-02,1\n", ("line 2", "1970")),
        ("time,price\n2024-03-01,1,3\n2024-03-02,1\n", ("line 2", "3 values")),
        ("time,time\n2024-03-01,1\n", ("time", "2 times")),
        ('{"data": 3}', ("no answer",)),
        ("[1]", ("no answer",)),
        ("{", ("no JSON",)),
        ("[" * 100_000, ("no JSON",)),
        ('{"data": []}', ("no rows",)),
        ("PAR1", ("no valid Parquet",)),
    ],
)
def test_faults_are_named_by_file_line_and_column(
    refuse: Refuse, text: str, facts: tuple[str, ...]
) -> None:
    assert_states(refuse(text, UTC_PRICE), "s.csv", *facts)


def test_carbon_intensities_below_zero(refuse: Refuse) -> None:
    carbon = SeriesOptions(unit="g/kWh", kind="average", zone="UTC")
    text = "time,value\n2024-03-01,1\n2024-03-02,-9000\n"
    assert_states(refuse(text, carbon, quantity="carbon"), "line 3", "'-9000'", "0 to 1e+09")


def test_faults_of_other_places(refuse: Refuse, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_series(tmp_path / "none.csv", "price")
    with pytest.raises(TraceError, match="directory"):
        read_series(tmp_path, "price")
    for zone in ("Mars/Olympus", "../UTC", "Europe", "+1", "tzlocal()", "+99:00"):
        assert_states(refuse(PLAIN, UTC_PRICE._replace(zone=zone)), "`zone`", repr(zone))
    health = refuse(WATTTIME, name="X_health_damage_2024.csv", quantity="carbon")
    assert_states(health, "health_damage")
    wrong = dict(ANSWER, data=[{"point_time": "2024-05-01T00:00:00Z", "value": True}])
    assert_states(refuse(json.dumps(wrong), name="a.json", quantity="carbon"), "row 1", "'True'")
    entsoe = refuse(ENTSOE.replace("27/10/2024 03:00:00 -", "2024 03:00 -"))
    assert_states(entsoe, "line 6", "MTU (CET/CEST) is '2024 03:00 -")
    path = tmp_path / "large.parquet"
    long = {"price": pa.nulls(MOST_SLOTS + 1, pa.float64())}
    wide = {f"price{n}": pa.nulls(MOST_SLOTS // 8, pa.float64()) for n in range(65)}
    for columns in (long, wide):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(TraceError, match=f"{MOST_SLOTS:,} rows or {MOST_BYTES:,} bytes"):
            read_series(path, "price")


def test_types_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    days = pa.array([datetime(2024, 3, day).date() for day in (1, 2)])
    prices = pa.array([Decimal("0.25"), Decimal("0.5")])
    pq.write_table(pa.table({"date": days, "price": prices}), path)
    series = read_series(path, "price", UTC_PRICE)
    assert (series.value.tolist(), np.diff(series.start_s).tolist()) == ([0.25, 0.5], [86400])


@pytest.mark.parametrize(
    ("text", "quantity", "expected"),
    [
        ("g/kWh", "carbon", (1.0, "g/kWh")),
        ("gCO₂eq/kWh", "carbon", (1.0, "g/kWh")),
        ("kgCO2e/MWh", "carbon", (1.0, "g/kWh")),
        ("t/MWh", "carbon", (1000.0, "g/kWh")),
        ("lbs_co2_per_mwh", "carbon", (0.45359237, "g/kWh")),
        ("lb/MWh", "carbon", (0.45359237, "g/kWh")),
        ("g", "carbon", None),
        ("EUR/MWh", "carbon", None),
        ("€/kWh", "price", (1.0, "€/kWh")),
        ("EUR / MWh", "price", (0.001, "EUR/kWh")),
        ("EUR", "price", None),
        ("/kWh", "price", None),
        ("EUR/MW/kWh", "price", None),
        ("1/kWh", "price", None),
        ("", "price", None),
    ],
)
def test_units(text: str, quantity: Quantity, expected: tuple[float, str] | None) -> None:
    assert convert_unit(text, quantity) == expected


def test_recorded_carbon_intensities(shared: Path) -> None:
    said = SeriesOptions(unit="g/kWh", kind="average", zone="UTC", repeat="year")
    for name in ("nl_2022", "de_2022"):
        path = shared / f"data/carbon/{name}.parquet"
        series = read_series(path, "carbon", said)
        recorded = pq.read_table(path)["carbon_intensity"].to_numpy()
        assert series.value.tolist() == recorded.tolist()
        assert (len(series.value), series.end_s - series.start_s[0]) == (34944, 364 * 86400)
        whole = series.integral(series.start_s[0], series.end_s)
        assert whole == pytest.approx(recorded.mean() * 364 * 86400)
        with pytest.raises(TraceError, match=r"row 8169: timestamp is 2022-03-27 02:00:00") as bad:
            read_series(path, "carbon", said._replace(zone="Europe/Amsterdam"))
        assert_states(str(bad.value), "row 29001", "2022-10-30 02:00:00")


def test_a_recorded_table_with_columns_of_its_own(shared: Path) -> None:
    path = shared / "data/carbon/miso_2022-10.csv"
    series = read_series(path, "carbon", SeriesOptions(unit="g/kWh", kind="marginal"))
    assert (len(series.value), series.value[0]) == (167, 646.8567445847223)
    assert series.start_s[0] == datetime(2022, 10, 20, 6, 20, tzinfo=UTC).timestamp()
    history = read_series(
        path, "carbon", SeriesOptions(column="hist", unit="g/kWh", kind="average")
    )
    assert history.value[0] == 619.2291837783333


SAMPLES: dict[str, tuple[str, Quantity, SeriesOptions]] = {
    "maps.csv": (MAPS, "carbon", SeriesOptions()),
    "old_maps.csv": (OLD_MAPS, "carbon", SeriesOptions(column="direct")),
    "co2_moer.csv": (WATTTIME, "carbon", SeriesOptions()),
    "answer.json": (json.dumps([ANSWER]), "carbon", SeriesOptions()),
    "entsoe.csv": (ENTSOE, "price", SeriesOptions()),
    "marked.csv": (MARKED, "price", SeriesOptions()),
    "old_entsoe.csv": (OLD_ENTSOE, "price", SeriesOptions()),
    "plain.csv": (PLAIN, "price", UTC_PRICE),
    "gap.csv": (GAP, "price", SeriesOptions(unit="$/MWh", zone="Europe/Berlin")),
}


@pytest.mark.parametrize("seed", range(6))
def test_altered_files_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    done = {"read": 0, "refused": 0}
    for _ in range(80):
        name = rng.choice([*SAMPLES, "s.parquet"])
        path = tmp_path / name
        text, quantity, said = SAMPLES.get(name, ("", "price", UTC_PRICE))
        if text:
            path.write_text(text, encoding="utf-8")
            tables = damage.alter_json if path.suffix == ".json" else damage.alter_table
            alter = rng.choice((damage.alter_bytes, damage.alter_encoding, tables, tables))
        else:
            times = pa.array([datetime(2024, 3, 1, hour) for hour in range(9)])
            pq.write_table(pa.table({"time": times, "price": np.arange(9.0)}), path)
            alter = rng.choice((damage.alter_bytes, damage.alter_parquet))
        told = alter(path, rng)
        filled = said._replace(fill="previous", stamp=rng.choice(("start", "end")), repeat="day")
        for options in (said, said._replace(fill="previous"), filled):
            if message := check(path, quantity, options):
                assert name in message, told
            done["refused" if message else "read"] += 1
    assert min(done.values()) > 20


def check(path: Path, quantity: Quantity, said: SeriesOptions) -> str:
    """Read a file whose series must be usable; the message if it is refused."""
    try:
        series = read_series(path, quantity, said)
    except TraceError as error:
        return str(error)
    assert np.isfinite(series.value).all()
    assert (np.diff(np.append(series.start_s, series.end_s)) > 0).all()
    return ""


def test_the_examples_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/electricity.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(block, names)
    values, notes, power, jobs = capsys.readouterr().out.splitlines()
    assert values == "[ 0.06  -0.005  0.09 ] EUR/kWh"
    assert_states(notes, "3 values from 2024-03-01 00:00:00Z", "EUR/MWh to EUR/kWh")
    assert float(power) == pytest.approx(2 * 0.5 * 0.06 + 0.5 * 0.06 - 0.005)
    assert [float(cost) for cost in jobs.strip("[]").split()] == pytest.approx([0.06, 0.16 / 3])
    for key in SeriesOptions._fields:
        assert f"`{key}`" in page
