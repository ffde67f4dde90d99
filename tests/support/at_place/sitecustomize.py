"""Sends its own process a signal at an exact place; Python imports it where it is in PYTHONPATH.

The signal comes before the n-th event that Python audits (imports, opened files, started
processes, sockets and so on) from the import of the command, or of the session, on.

`AT_PLACE` is `n:SIGNAL`; with n=0 it only counts. `AT_PLACE_COUNT` names a file that gets the
number of events at the end. Or `AT_PLACE_PLANS` is a folder of files with `[n, SIGNAL]`, of which
each process that is an `AT_PLACE_WHO` takes one, and renames it once it is used.
"""

# pathlib is not loaded yet
# ruff: noqa: PTH104, PTH123, PTH208

import atexit
import json
import os
import sys

STARTS = {
    "controller": ("wattkeeper.scenarios.cli", "wattkeeper.live.controller.backend"),
    "session": ("wattkeeper.live.session", "wattkeeper.live.session.session"),
}

GUARD = "wattkeeper.live.devices.restore_guard"

_pid, _events = os.getpid(), -1
_who = "session" if "WATTKEEPER_RUN" in os.environ else "controller"
_starts = STARTS[_who][:1]
_place, _signal, _used = -1, 0, ""


def _take_plan(folder: str) -> None:
    global _place, _signal, _used
    for name in sorted(os.listdir(folder)):
        taken = f"{folder}/taken.{name}.{_pid}"
        if not name.isdecimal():
            continue
        try:
            os.rename(f"{folder}/{name}", taken)
        except FileNotFoundError:  # another process took it
            continue
        with open(taken, encoding="ascii") as file:
            _place, _signal = json.load(file)
        _used = f"{folder}/sent.{name}"
        return


def _note(event: str, arguments: tuple[object, ...]) -> None:
    global _events
    if os.getpid() != _pid or event.startswith(("os.kill", "signal", "object.", "os.rename")):
        return
    if event == "import" and _events < 0 and arguments[0] in _starts:
        _events = 0
    if _events < 0:
        return
    _events += 1
    if _events == _place:
        if _used:
            os.close(os.open(_used, os.O_CREAT | os.O_WRONLY))
        os.kill(_pid, _signal)


def _write_count() -> None:
    global _events
    count, _events = _events, -1
    with open(os.environ["AT_PLACE_COUNT"], "w", encoding="ascii") as file:
        file.write(str(count))


if "AT_PLACE" in os.environ:
    _place, _signal = map(int, os.environ["AT_PLACE"].split(":"))
    if "AT_PLACE_COUNT" in os.environ:
        atexit.register(_write_count)
elif os.environ.get("AT_PLACE_WHO") == _who and not {"-c", GUARD} & set(sys.orig_argv):
    _starts = STARTS[_who][1:]
    _take_plan(os.environ["AT_PLACE_PLANS"])
if _place >= 0:
    sys.addaudithook(_note)
