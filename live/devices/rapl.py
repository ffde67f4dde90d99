"""CPU packages that count their energy: RAPL, as Linux shows it in `/sys/class/powercap`.

A package counts what its cores and its cache draw, for all processes of the host together. Memory
is left out: only some hosts count it.
"""

import re
import socket
from pathlib import Path
from typing import Final

from wattkeeper.live.devices.device import PowerRange
from wattkeeper.policies.errors import DeviceLost, NoPermission, NotSupported

ROOT: Final = Path("/sys/class/powercap")
CPU: Final = Path("/proc/cpuinfo")
ZONE: Final = re.compile(r"intel-rapl:\d+")  # AMD's packages have the same name
MOST_W: Final = 1000.0
"""No package draws more, so that a counter cannot wrap sooner."""
SELDOM_S: Final = 60.0


class CpuPackage:
    """A CPU package; see `wattkeeper.live.devices.device.Device`.

    It takes no power limit: other processes use the cores of a host, too.

    `zone` is its folder.

    Raises:
        NoPermission: If this user may not read the counter.
        DeviceLost: If it is not there.
    """

    limits: PowerRange | None = None
    clocks_mhz: tuple[int, ...] = ()
    has_counter = True

    def __init__(self, zone: Path) -> None:
        self.zone = zone
        self.name = zone.name
        self.name = self._text("name")
        self.uuid = f"{socket.gethostname()}/{self.name}"
        self.gpu_type = cpu_type()
        self._range_uj = int(self._text("max_energy_range_uj"))
        self._last_uj = self._counter_uj()
        self._counted_uj = 0
        self.read_every_s: float | None = min(SELDOM_S, self._range_uj / 1e6 / MOST_W / 2)

    def energy_j(self) -> float:
        """Energy since this object was made, J; the counter's wraps are undone."""
        now_uj = self._counter_uj()
        self._counted_uj += (now_uj - self._last_uj) % self._range_uj
        self._last_uj = now_uj
        return self._counted_uj / 1e6

    def power_w(self) -> float:
        """RAPL does not say it."""
        raise NotSupported(f"{self.name}: a CPU package counts energy, not power")

    def utilisation(self) -> float:
        """RAPL does not say it."""
        raise NotSupported(f"{self.name}: a CPU package does not say how busy it is")

    def limit_w(self) -> float:
        """It takes none."""
        raise NotSupported(f"{self.name}: the power of a CPU package is not limited from here")

    def set_limit_w(self, limit_w: float) -> None:
        """It takes none."""
        raise NotSupported(f"{self.name}: the power of a CPU package is not limited from here")

    def lock_clock_mhz(self, clock_mhz: int) -> None:
        """It takes none."""
        raise NotSupported(f"{self.name}: the clock of a CPU package is not locked from here")

    def unlock_clock(self) -> None:
        """It takes none."""
        raise NotSupported(f"{self.name}: the clock of a CPU package is not locked from here")

    def _counter_uj(self) -> int:
        return int(self._text("energy_uj"))

    def _text(self, name: str) -> str:
        path = self.zone / name
        try:
            return path.read_text(encoding="ascii").strip()
        except PermissionError:
            raise NoPermission(
                f"{self.name}: this user may not read {path}. Until the next boot, this allows it: "
                f"sudo chmod a+r {self.zone.parent}/intel-rapl:*/energy_uj"
            ) from None
        except OSError as error:
            raise DeviceLost(
                f"{self.name}: {path} cannot be read ({error.strerror}); RAPL's driver was "
                "unloaded, or this is a container without /sys"
            ) from None


def packages(root: Path = ROOT) -> list[CpuPackage]:
    """The packages of the host, by number; empty where there is no RAPL.

    Raises:
        NoPermission: If this user may not read a counter.
    """
    if not root.is_dir():
        return []
    zones = [zone for zone in root.iterdir() if ZONE.fullmatch(zone.name)]
    zones.sort(key=lambda zone: int(zone.name.partition(":")[2]))
    # The zone of the whole platform, `psys`, would count the packages twice.
    return [CpuPackage(zone) for zone in zones if _kind(zone).startswith("package")]


def cpu_type(info: Path = CPU) -> str:
    """The host's name of its CPUs; `CPU` if it has none."""
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "CPU"
    match = re.search(r"^model name\s*:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return match[1] if match else "CPU"


def _kind(zone: Path) -> str:
    try:
        return (zone / "name").read_text(encoding="ascii")
    except OSError:
        return ""
