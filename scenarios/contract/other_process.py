"""Rehearses policies in another process, whose hashes of text are other ones.

So the order of a set of text is another one there, too.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Final

from wattkeeper.policies.parts import Part
from wattkeeper.scenarios.contract.breach import ContractBreach
from wattkeeper.scenarios.contract.rehearsal import Record, Rehearsal
from wattkeeper.scenarios.contract.steps import LONG

SEED: Final = "PYTHONHASHSEED"


def rehearse_elsewhere(configs: Sequence[Part]) -> list[Record]:
    """Put policies through the long stream in another process.

    Raises:
        ContractBreach: If that fails.
    """
    seed = "1" if os.environ.get(SEED) != "1" else "2"
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps(list(configs)),
        capture_output=True,
        env=os.environ | {SEED: seed},
        check=False,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ContractBreach(f"fails in another process: {last:.300}")
    records: list[Record] = pickle.loads(done.stdout)
    return records


def main() -> None:
    """Read configs from standard input, and write what their policies decided."""
    with redirect_stdout(sys.stderr):
        records = [Rehearsal(config, LONG).record() for config in pickle.load(sys.stdin.buffer)]
    sys.stdout.buffer.write(pickle.dumps(records))


if __name__ == "__main__":
    main()
