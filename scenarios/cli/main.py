"""The command `wattkeeper`.

Only what a subcommand needs is imported, inside it: `wattkeeper --help` stays quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from wattkeeper.policies.errors import EnvironmentLacks, WattkeeperError, cut_message
from wattkeeper.policies.printable import printable
from wattkeeper.policies.suggestions import did_you_mean
from wattkeeper.scenarios.cli import terminal
from wattkeeper.scenarios.cli.completion.names import complete_scenarios
from wattkeeper.scenarios.cli.completion.shells import SHELLS, script
from wattkeeper.scenarios.cli.options import json_option
from wattkeeper.scenarios.cli.run import axes_option, policies_option, settings_option

if TYPE_CHECKING:
    from wattkeeper.scenarios.spec.loading import LoadedScenario

INTERRUPTED = 130
LACKING = 3

MODULES: Final = {
    "bench": "bench",
    "compare": "compare",
    "elastic": "elastic",
    "policy": "policy",
    "record": "record",
    "report": "report",
    "run": "run",
    "study": "study",
    "timeline": "timeline",
    "traces": "traces",
    "zoo": "zoo",
}
"""Commands of other modules; each is imported when it is asked for."""


class Group(click.Group):
    """Turns errors of wattkeeper into a message and an exit code: 0, 1, 2, 3 or 130."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._reserved: list[click.Command] = []

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the command line, run the subcommand, and exit.

        Unlike click's own, it exits with 130 wherever an interruption comes.
        """
        kwargs["standalone_mode"] = False
        try:
            terminal.open_streams()
            sys.exit(super().main(*args, **kwargs))
        except click.ClickException as error:
            with suppress(OSError):
                error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            terminal.write("interrupted", err=True)
            sys.exit(INTERRUPTED)
        except EnvironmentLacks as error:
            terminal.write(str(error), err=True)
            sys.exit(LACKING)
        finally:
            terminal.drop_unwritten()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted({*self.commands, *MODULES})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name, whose standard output is its own."""
        command = self.commands.get(cmd_name)
        if command is None and cmd_name in MODULES:
            module = import_module(f"wattkeeper.scenarios.cli.{MODULES[cmd_name]}")
            command = getattr(module, cmd_name)
            assert isinstance(command, click.Command)
            self.add_command(command)
        if command is not None and command not in self._reserved:
            self._reserved.append(command)
            _reserve_output(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A command and its arguments; an error names the command that is most alike."""
        known = self.get_command(ctx, args[0]) or args[0].startswith("-")
        if not known and not ctx.resilient_parsing:
            meant = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"No such command {args[0]!r}{meant}.", ctx)
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Parse the arguments."""
        with _exit_codes("standard output"), _printable_errors():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _exit_codes(), _printable_errors(), terminal.signs_of_life():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _exit_codes(file: str = "system") -> Iterator[None]:
    """Inside, what is raised ends in a message, which may name a file, and an exit code."""
    try:
        yield
    except WattkeeperError as error:
        _fail("\n".join([str(error), *getattr(error, "__notes__", ())]), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does: not all was written
        raise click.exceptions.Exit(LACKING) from None
    except MemoryError:
        _fail("the memory of this host does not suffice", LACKING)
    except OSError as error:
        _fail(cut_message(f"{error.filename or file}: {error.strerror or error}"), LACKING)


def _fail(message: str, code: int) -> NoReturn:
    terminal.write(message, err=True)
    raise click.exceptions.Exit(code)


@contextmanager
def _printable_errors() -> Iterator[None]:
    """Inside, a message about arguments shows their control characters as escapes."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if printable(message) == message:
            raise
        raise click.UsageError(printable(message), error.ctx) from None


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="wattkeeper")
def main() -> None:
    """Replay deep-learning jobs on a simulated cluster, and compare policies."""


@main.command()
@click.argument("scenario", shell_complete=complete_scenarios)
@settings_option
@axes_option
@policies_option
def validate(
    scenario: str, settings: tuple[str, ...], axes: tuple[str, ...], policy_files: tuple[str, ...]
) -> None:
    """Check SCENARIO and the traces that it names, without running it."""
    from wattkeeper.traces.process_setup import configure_process

    configure_process()
    from wattkeeper.scenarios.inputs.job_filter import describe_dropped, describe_ignored_types
    from wattkeeper.scenarios.inputs.measured_energy import describe_measured
    from wattkeeper.scenarios.inputs.profiled_jobs import describe_counted
    from wattkeeper.scenarios.run.policy_checks import check_policies, warn_estimates
    from wattkeeper.scenarios.run.read import read_inputs
    from wattkeeper.scenarios.spec.loading import describe_overridden, load
    from wattkeeper.scenarios.spec.wording import count

    loaded = load(scenario, settings, axes=axes, policy_files=policy_files)
    if loaded.scenario.sweep is not None:
        _validate_sweep(loaded)
        return
    for line in describe_overridden(loaded.document):
        terminal.write(line, err=True)
    simulated = getattr(loaded.scenario.workload, "profiles", None) is not None
    live = None if simulated else loaded.scenario.live
    inputs = read_inputs(loaded, live=live is not None)
    check_policies(loaded, inputs)
    if warning := warn_estimates(loaded, inputs):
        terminal.write(warning, err=True)
    if live is not None:
        from wattkeeper.scenarios.run.live_equipment import check_live

        check_live(loaded, inputs.runs, live)
    dropped = describe_dropped(inputs.dropped, inputs.dropped_for)
    profiled = () if inputs.profiled is None else describe_counted(inputs.profiled)
    measured = () if inputs.measured is None else describe_measured(inputs.measured)
    for line in (*profiled, *measured, *dropped, *describe_ignored_types(inputs.ignored)):
        terminal.write(line)
    runs, variants = len(loaded.runs), len(loaded.scenario.variants)
    terminal.write(
        f"{loaded.document.name}: good; {count(variants, 'variant')}, {count(runs, 'run')}"
    )


def _validate_sweep(loaded: LoadedScenario) -> None:
    from wattkeeper.scenarios.sweep.points import (
        describe_overridden_axes,
        expand_sweep,
        read_point_inputs,
    )

    all_points = expand_sweep(loaded)
    for line in describe_overridden_axes(all_points):
        terminal.write(line, err=True)
    for _ in read_point_inputs(all_points, partial(terminal.write, err=True)):
        pass
    scenario, document = loaded
    runs = len(all_points) * len(scenario.variants) * len(scenario.all_seeds)
    terminal.write(
        f"{document.name}: good; {len(all_points)} points, {len(scenario.variants)} variants, "
        f"{runs} runs"
    )


@main.command()
@click.argument("name", required=False, shell_complete=complete_scenarios)
@json_option
def scenarios(name: str | None, as_json: bool) -> None:
    """List the shipped scenarios, or print the file of the one called NAME."""
    from wattkeeper.scenarios.spec.loading import find_scenario, load, shipped
    from wattkeeper.scenarios.spec.yaml_document import read_text

    if name is not None:
        terminal.write(read_text(find_scenario(name)), end="")
        return
    known = {name: load(name).scenario.question for name in shipped()}
    if as_json:
        terminal.write(json.dumps(known, indent=2))
        return
    width = max(map(len, known))
    for shipped_name, question in known.items():
        terminal.write(f"{shipped_name:{width}}  {question}")


@main.command()
@click.argument("what", type=click.Choice(("scenario", "profiles")), default="scenario")
def schema(what: str) -> None:
    """Print the JSON schema of scenario files, for editors, or of a row of profiles.

    profiles: of a table for `wattkeeper traces import profiles`.
    """
    from wattkeeper.scenarios.spec.json_schema import json_schema
    from wattkeeper.traces.formats.profiles.json_schema import row_schema

    known = json_schema() if what == "scenario" else row_schema()
    terminal.write(json.dumps(known, indent=2))


@main.command()
@click.option("--look-only", is_flag=True, help="Do not try whether power limits may be set.")
@json_option
def doctor(look_only: bool, as_json: bool) -> None:
    """Check the devices, packages and permissions of this host for live runs.

    Power limits that killed runs left behind are restored, unless --look-only is given. Exit code
    3: a live run would fail here.
    """
    from wattkeeper.scenarios.cli.doctor import examine_host, format_report

    report = examine_host(look_only=look_only)
    if as_json:
        findings = [finding._asdict() for finding in report.findings]
        can = report.can_run_live
        content = {"can_run_live": can, "findings": findings, "devices": report.devices}
        terminal.write(json.dumps(content, indent=2))
    else:
        terminal.write("\n".join(format_report(report)))
    if not report.can_run_live:
        raise click.exceptions.Exit(LACKING)


@main.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what lets SHELL complete commands, and names of scenarios, traces and variants.

    In bash and zsh: eval "$(wattkeeper completion bash)", with the name of the shell; in fish:
    wattkeeper completion fish | source. That line in the shell's start-up file keeps it.
    """
    terminal.write(script(shell, main))


def _reserve_output(command: click.Command) -> None:
    """Let a command, or all of a group, keep their standard output to themselves."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _reserve_output(inner)
    elif command.callback is not None:
        command.callback = terminal.reserve_output()(command.callback)
