"""Values of services and files, asked for from a real server that may fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from tests.support.messages import assert_states
from tests.support.processes import until
from wattkeeper.live.signals import feed as feeds
from wattkeeper.live.signals import http
from wattkeeper.live.signals.addresses import check_address
from wattkeeper.live.signals.feed import SignalFeed
from wattkeeper.live.signals.http import MOST_BYTES, NoAnswer
from wattkeeper.live.signals.providers import (
    MAPS_TOKEN,
    WATTTIME_PASSWORD,
    WATTTIME_USER,
    ElectricityMaps,
    GrowingFile,
    SlotValue,
    WattTime,
)
from wattkeeper.policies.errors import EnvironmentLacks, InputError
from wattkeeper.traces.electricity.forms import SeriesOptions

SECRET = "not-for-others"


class Answer(NamedTuple):
    """What the server answers with."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Service:
    """A web service: answers by path, and what it was asked."""

    def __init__(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append((self.path, headers))
                queue = service.answers.get(path, [])
                answer = queue.pop(0) if len(queue) > 1 else queue[0] if queue else Answer(b"", 404)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                for begin in range(0, len(answer.body), service.part):
                    self.wfile.write(answer.body[begin : begin + service.part])
                    time.sleep(service.delay_s)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.part, self.delay_s = 1 << 30, 0.0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, list[Answer]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, *answers: Answer | Any) -> None:
        """Answer so, one after the other; the last one for ever."""
        self.answers[path] = [
            one if isinstance(one, Answer) else Answer(json.dumps(one).encode()) for one in answers
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Service]:
    for name in (MAPS_TOKEN, WATTTIME_USER, WATTTIME_PASSWORD):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    started = Service()
    yield started
    started.close()


def date(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")


def hour(back: int = 0) -> float:
    """Begin of an hour, so many before the present one."""
    return time.time() // 3600 * 3600 - 3600 * back


def latest(value: float | None, begin_s: float) -> dict[str, Any]:
    return {"zone": "DE", "carbonIntensity": value, "datetime": date(begin_s)}


MAPS_LATEST, MAPS_HISTORY = "/v3/carbon-intensity/latest", "/v3/carbon-intensity/history"


def test_electricity_maps(service: Service) -> None:
    rows = [latest(300 + back, hour(back)) for back in range(24)]
    service.answer(MAPS_HISTORY, {"zone": "DE", "history": rows})
    provider = ElectricityMaps("DE", service.address)
    readings = provider.history()
    assert readings[-1] == SlotValue(hour(), 300)
    assert readings[0] == SlotValue(hour(23), 323)
    path, headers = service.asked[-1]
    assert path == f"{MAPS_HISTORY}?zone=DE"
    assert headers["auth-token"] == SECRET


def test_watttime_logs_in_and_converts_pounds(service: Service) -> None:
    service.answer("/login", {"token": "t1"})
    now_s = time.time() // 300 * 300
    rows = [{"point_time": date(now_s + 300 * n), "value": 1000.0 + n} for n in range(3)]
    service.answer("/v3/forecast", {"data": rows, "meta": {}})
    service.answer("/v3/historical", {"data": rows[:1], "meta": {}})
    provider = WattTime("CAISO_NORTH", service.address)
    for readings in (provider.latest(), provider.history()):
        assert [begin_s for begin_s, _ in readings] == [now_s]
        assert readings[0].value == pytest.approx(453.59237)
    paths = [path.partition("?")[0] for path, _ in service.asked]
    assert paths == ["/login", "/v3/forecast", "/v3/historical"], "one token for both"
    assert service.asked[0][1]["authorization"].startswith("Basic ")
    assert service.asked[1][1]["authorization"] == "Bearer t1"
    assert "region=CAISO_NORTH" in service.asked[1][0]
    service.answer("/v3/forecast", Answer(b"", 401), {"data": rows})
    with pytest.raises(EnvironmentLacks, match="refuses these credentials"):
        provider.latest()
    assert provider.latest()
    assert [path for path, _ in service.asked].count("/login") == 2, "the token had expired"


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (Answer(b"{}", 500), ["status 500"]),
        (Answer(b"{}", 429, (("Retry-After", "7"),)), ["status 429"]),
        (Answer(b"{}", 302, (("Location", "http://127.0.0.1:1/"),)), ["status 302"]),
        (Answer(b"garbage \xff"), ["JSON object"]),
        (Answer(b"[" * 100_000), ["JSON object"]),
        (Answer(b"[1]"), ["JSON object"]),
        (Answer(b" " * (MOST_BYTES + 9)), ["bytes"]),
        ({"carbonIntensity": "many", "datetime": "2024-01-01T00:00:00Z"}, ["without a value"]),
        ({"carbonIntensity": 1e300, "datetime": "2024-01-01T00:00:00Z"}, ["without a value"]),
        ({"carbonIntensity": True, "datetime": "2024-01-01T00:00:00Z"}, ["without a value"]),
        ({"carbonIntensity": 3, "datetime": "yesterday"}, ["without a value", "datetime"]),
        ({"carbonIntensity": 3, "datetime": "2024-01-01T00:00:00"}, ["without a value"]),
    ],
)
def test_answers_that_cannot_be_used(service: Service, answer: Any, facts: list[str]) -> None:
    service.answer(MAPS_LATEST, answer)
    with pytest.raises(NoAnswer) as caught:
        ElectricityMaps("DE", service.address).latest()
    assert_states(str(caught.value), service.address, *facts)
    assert SECRET not in str(caught.value)
    retries = isinstance(answer, Answer) and answer.status == 429
    assert caught.value.retry_s == (7 if retries else 0)


def test_an_answer_that_drips(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 1.0)
    service.answer(MAPS_LATEST, latest(300.0, hour()))
    service.part, service.delay_s = 1, 0.2
    with pytest.raises(NoAnswer, match="too long"):
        ElectricityMaps("DE", service.address).latest()


def test_nobody_answers(service: Service) -> None:
    service.close()
    with pytest.raises(NoAnswer, match="does not answer"):
        ElectricityMaps("DE", service.address).latest()


@pytest.mark.parametrize(
    "address",
    ["ftp://a.b", "file:///etc/passwd", "a.b", "https://", "https://u:p@a.b", "https://a.b/?t=1"],
)
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="address"):
        check_address(address)


def test_a_secret_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MAPS_TOKEN, raising=False)
    with pytest.raises(EnvironmentLacks, match=MAPS_TOKEN):
        ElectricityMaps("DE")
    monkeypatch.setenv(MAPS_TOKEN, "a\r\nHost: b")
    with pytest.raises(EnvironmentLacks, match="printable"):
        ElectricityMaps("DE")


def test_the_cache_spares_questions_and_keeps_no_secret(service: Service, tmp_path: Path) -> None:
    rows = [latest(300.0 + back, hour(back)) for back in range(3)]
    service.answer(MAPS_HISTORY, {"history": rows})
    first = SignalFeed(ElectricityMaps("DE", service.address), None).first()
    asked = len(service.asked)
    again = SignalFeed(ElectricityMaps("DE", service.address), None).first()
    assert again == first
    assert len(service.asked) == asked, "the present hour is known"
    assert SignalFeed(ElectricityMaps("FR", service.address), 100.0).first(), "another zone"
    assert len(service.asked) > asked
    (file, _) = sorted((tmp_path / "state/signals").iterdir())
    assert SECRET not in file.read_text()
    file.write_text("damaged")
    assert SignalFeed(ElectricityMaps("DE", service.address), None).first() == first


@pytest.mark.slow
def test_failures_at_the_start(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"history": [latest(300.0, hour())]}
    service.answer(MAPS_HISTORY, Answer(b"", 503), Answer(b"", 503), good)
    feed = SignalFeed(ElectricityMaps("DE", service.address), None)
    assert feed.first() == [SlotValue(hour(), 300.0)]
    assert feed.problem == ""
    monkeypatch.setattr(feeds, "START_S", 1.5)
    service.answer(MAPS_HISTORY, Answer(b"", 503))
    with pytest.raises(NoAnswer, match="503"):
        SignalFeed(ElectricityMaps("FR", service.address), None).first()
    assert SignalFeed(ElectricityMaps("FR", service.address), 100.0).first() == []


class Quick(ElectricityMaps):
    """Slots of a second."""

    slot_s = 1.0


def test_new_values_are_posted_and_missing_ones_replaced(service: Service) -> None:
    begin_s = float(int(time.time()))
    service.answer(MAPS_LATEST, latest(301.0, begin_s), Answer(b"", 500), latest(301.0, begin_s))
    posted: list[tuple[SlotValue, bool]] = []
    feed = SignalFeed(Quick("DE", service.address), 77.0)
    feed.start(begin_s - 1, begin_s - 1, lambda *reading: posted.append(reading), print)
    try:
        until(lambda: len(posted) >= 3)
    finally:
        feed.close()
    assert posted[0] == (SlotValue(begin_s, 301.0), False)
    assert {(value, is_fallback) for (_, value), is_fallback in posted[1:]} == {(77.0, True)}
    begins = [reading.begin_s for reading, _ in posted]
    assert begins == sorted(set(begins))


def test_without_a_number_to_fall_back_on_nothing_is_posted(service: Service) -> None:
    begin_s = float(int(time.time()))
    service.answer(MAPS_LATEST, latest(301.0, begin_s), Answer(b"", 500))
    posted: list[SlotValue] = []
    feed = SignalFeed(Quick("DE", service.address), None)
    told: list[str] = []
    feed.start(begin_s - 1, begin_s - 1, lambda reading, _: posted.append(reading), told.append)
    try:
        until(lambda: len(service.asked) >= 3)
    finally:
        feed.close()
    assert posted == [SlotValue(begin_s, 301.0)]
    assert "status 500" in feed.problem
    assert feed.failures >= 1
    (line,) = told
    assert_states(line, "status 500", "the last value holds")


def test_a_late_value_replaces_its_fallback(service: Service) -> None:
    begin_s = float(int(time.time()))
    service.answer(MAPS_LATEST, Answer(b"", 500), latest(301.0, begin_s))
    posted: list[tuple[SlotValue, bool]] = []
    told: list[str] = []
    feed = SignalFeed(Quick("DE", service.address), 77.0)
    feed.start(begin_s - 3, begin_s - 3, lambda *reading: posted.append(reading), told.append)
    try:
        until(lambda: (SlotValue(begin_s, 301.0), False) in posted)
    finally:
        feed.close()
    before = posted[: posted.index((SlotValue(begin_s, 301.0), False))]
    assert SlotValue(begin_s - 1, 77.0) in [reading for reading, _ in before]
    assert_states("\n".join(told), "status 500", "the fallback 77 holds", "answers again")


def test_back_off_doubles_and_obeys_the_service(service: Service) -> None:
    feed = SignalFeed(Quick("DE", service.address), None)
    waits = [feed._back_off_s(NoAnswer("x")) for _ in range(20)]
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == feeds.MOST_BACK_OFF_S
    assert feed._back_off_s(NoAnswer("x", 1800)) == 1800


def test_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "carbon.csv"
    rows = ["time,carbon (g/kWh)", "2024-01-01T00:00:00Z,300", "2024-01-01T00:00:01Z,310"]
    path.write_text("\n".join(rows) + "\n2024-01-01T00:0")
    provider = GrowingFile(path, "carbon", SeriesOptions(kind="average"))
    start_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    assert provider.history() == [SlotValue(start_s, 300), SlotValue(start_s + 1, 310)]
    assert (provider.slot_s, provider.unit) == (1.0, "g/kWh")
    with path.open("a") as file:
        file.write("0:02Z,320\n")
    assert provider.latest()[-1] == SlotValue(start_s + 2, 320)
    with path.open("a") as file:
        file.write("2024-01-01T00:00:03Z,much\n")
    with pytest.raises(EnvironmentLacks) as caught:
        provider.latest()
    assert_states(str(caught.value), path, "much")
    path.unlink()
    with pytest.raises(EnvironmentLacks, match=r"carbon\.csv"):
        provider.latest()


@pytest.mark.parametrize("stamp", ["start", "end"])
def test_a_growing_file_may_lack_rows(tmp_path: Path, stamp: Literal["start", "end"]) -> None:
    path = tmp_path / "s.csv"

    def write(*seconds: int) -> None:
        rows = [f"2024-01-01T00:00:{second:02}Z,{second}" for second in seconds]
        path.write_text("\n".join(["time,value", *rows, ""]))

    provider = GrowingFile(path, "value", SeriesOptions(stamp=stamp))
    start_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp() - 2 * (stamp == "end")
    write(0, 2, 4, 10)
    assert provider.history() == [SlotValue(start_s + n, n) for n in (0, 2, 4, 10)]
    write(0, 2, 4, 10, 16, 22, 28, 34)
    assert provider.latest()[-1] == SlotValue(start_s + 34, 34)
    assert provider.slot_s == 2
    write(0, 2, 4, 10, 13)
    with pytest.raises(EnvironmentLacks) as caught:
        provider.latest()
    assert_states(str(caught.value), path, "3 s after", "slots of 2 s")
