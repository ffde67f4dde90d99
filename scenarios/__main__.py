"""`python -m wattkeeper.scenarios` is the command `wattkeeper`."""

from wattkeeper.scenarios.cli.main import main

main(prog_name="wattkeeper")
