"""What the controller of a live run costs while nothing happens.

``python benchmarks/idle_controller.py [SECONDS]`` rehearses a training of two GPUs on the host's
own time, whose epochs take longer than that, and measures the CPU time of the controller meanwhile,
signs of life of its sessions included. At most 2 % of a core are allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

MOST = 0.02
SCENARIO = {
    "name": "idle",
    "cluster": {"gpu": "SYN-250W", "gpus": 2, "gpus_per_node": 1, "idle_power_w": 40},
    "workload": {
        "kind": "recurring",
        "profiles": {"synthetic": {}},
        "workloads": ["language", "image"],
        "recurrences": 1,
    },
    "live": {"lease_s": 6},
    "variants": {"default": {}},
    "baseline": "default",
}


def cpu_s(pid: int) -> float:
    """CPU time of a process and all its threads, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(seconds: float) -> float:
    """The share of a core that an idle controller takes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "idle.yaml").write_text(yaml.safe_dump(SCENARIO))
        controller = subprocess.Popen(
            [sys.executable, "-m", "wattkeeper.scenarios", "run", "idle.yaml", "--live"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "WATTKEEPER_STATE": str(folder / "state")},
        )
        try:
            log = folder / "results/idle.live/default/1/output"
            give_up_s = time.monotonic() + 120
            while len(list(log.glob("*.err"))) < 2:
                if controller.poll() is not None or time.monotonic() > give_up_s:
                    raise SystemExit("the controller did not start its trainings")
                time.sleep(0.1)
            time.sleep(5)  # sessions begin
            before_s, begun_s = cpu_s(controller.pid), time.monotonic()
            time.sleep(seconds)
            return (cpu_s(controller.pid) - before_s) / (time.monotonic() - begun_s)
        finally:
            controller.terminate()
            controller.wait()
            _end_sessions(folder)


def _end_sessions(folder: Path) -> None:
    from wattkeeper.live.controller import processes

    mine = str(folder / "state")
    runs = {
        env["WATTKEEPER_RUN"]
        for _, env in processes.environments()
        if env.get("WATTKEEPER_STATE") == mine
    }
    for run in runs:
        processes.kill(run)
        while processes.guards(run):
            time.sleep(0.01)


if __name__ == "__main__":
    found = share(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
    print(f"idle controller: {100 * found:.2f} % of a core (at most {100 * MOST:.0f} %)")
    raise SystemExit(found > MOST)
