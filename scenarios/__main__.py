"""The command `wattkeeper`, and `python -m wattkeeper.scenarios`."""

import sys
from typing import NoReturn


def start() -> NoReturn:
    """Run the command, and exit; an interruption counts from the first import on."""
    try:
        from wattkeeper.scenarios.cli.main import main

        main(prog_name="wattkeeper")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit()


if __name__ == "__main__":
    start()
