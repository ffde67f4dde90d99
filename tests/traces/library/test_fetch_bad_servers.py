"""Downloads without a stated digest from a real server on this machine that misbehaves."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import EnvironmentLacks
from wattkeeper.traces.library import fetch as fetching

JOBS = "".join(f"{n} {n} 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n" for n in range(1, 2000))
GOOD = f"; MaxNodes: 128\n{JOBS}".encode()
PAGE = b"<!DOCTYPE html><html><body>Log in to the network</body></html>"


class Server(ThreadingHTTPServer):
    """Answers each request by the next of `answers`: status, headers and body."""

    answers: list[tuple[int, dict[str, str], bytes]]
    ranges: list[str | None]
    endless = b""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range"))
        status, headers, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        try:
            while self.server.endless:
                self.wfile.write(self.server.endless)
        except OSError:
            return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    made = Server(("127.0.0.1", 0), Handler)
    made.answers, made.ranges = [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def whole(body: bytes = GOOD, **headers: str) -> tuple[int, dict[str, str], bytes]:
    stated = {"Content-Length": str(len(body)), "ETag": '"v1"', **headers}
    return 200, {name: value for name, value in stated.items() if value}, body


def fetch(command: Command, server: Server, code: int = 0) -> str:
    url = f"http://127.0.0.1:{server.server_port}/log.swf"
    done = command("traces", "fetch", "sdsc-sp2", "--url", url, code=code)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (whole(PAGE, **{"Content-Type": "text/html; charset=utf-8"}), 3),
        (whole(PAGE), 2),
        (whole(b""), 3),
        (whole(b"", **{"Content-Length": ""}), 3),
        (whole(GOOD[: len(GOOD) // 100], **{"Content-Length": ""}), 2),
        (whole(b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\0" * 50), 2),
        (whole(bytes(range(256)) * 10), 2),
    ],
    ids=["page", "page as data", "empty", "empty, no length", "cut, no length", "gzip", "binary"],
)
def test_a_bad_download_is_not_kept(
    server: Server, command: Command, answer: tuple[int, dict[str, str], bytes], code: int
) -> None:
    server.answers = [answer, whole()]
    text = fetch(command, server, code)
    assert len(server.ranges) == 1
    if code == 2:
        assert_states(text, "was removed", "The same command downloads it anew")
    assert "1999 jobs" in fetch(command, server).replace(",", "")
    assert server.ranges == [None, None]


@pytest.mark.parametrize("what", ["other start", "other end", "other version", "other length"])
def test_a_wrong_range_starts_anew(server: Server, command: Command, what: str) -> None:
    have = 1000
    total = len(GOOD)
    start, end, tag, length = have, total - 1, '"v1"', total - have
    body = GOOD[have:]
    if what == "other start":
        start = have + 5
    elif what == "other end":
        end = total - 10
    elif what == "other version":
        tag = '"v2"'
    else:
        length, body = total, GOOD
    span = f"bytes {start}-{end}/{total}"
    headers = {"Content-Range": span, "ETag": tag, "Content-Length": str(length)}
    server.answers = [
        (200, {"Content-Length": str(total), "ETag": '"v1"'}, GOOD[:have]),
        (206, headers, body),
        whole(),
    ]
    assert "broke off" in fetch(command, server, 3)
    assert "1999 jobs" in fetch(command, server).replace(",", "")
    assert server.ranges == [None, f"bytes={have}-", None]


@pytest.mark.parametrize("limit", ["size", "time", "rate"])
def test_a_body_without_an_end_is_broken_off(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    server.endless = b"; more of it\n" * 100
    server.answers = [(200, {}, b"")]
    if limit == "size":
        monkeypatch.setattr(fetching, "LARGEST_BYTES", 1_000_000)
    elif limit == "time":
        monkeypatch.setattr(fetching, "LONGEST_S", 0.0)
    else:
        monkeypatch.setattr(fetching, "GRACE_S", 0.0)
        monkeypatch.setattr(fetching, "SLOWEST_BYTES_PER_S", 10**15)
    url = f"http://127.0.0.1:{server.server_port}/log.swf"
    with pytest.raises(EnvironmentLacks) as caught:
        fetching.fetch("sdsc-sp2", url=url)
    facts = {"size": "more than 1,000,000 bytes", "time": "too slow", "rate": "too slow"}
    assert re.search(facts[limit], str(caught.value))
    assert not (tmp_path / "library/.downloads/sdsc-sp2/log.swf").exists()
