"""The scripts that let shells ask for completions.

A shell asks by starting `wattkeeper` with `_WATTKEEPER_COMPLETE` in its environment; click answers.
"""

from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
)

VARIABLE: Final = "_WATTKEEPER_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@add_completion_class
class BashWords(BashComplete):
    """Completion in bash, which splits words at `=` and completes what follows it.

    No space follows a key, which ends in `=`.
    """

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' line
    COMPREPLY=()
    for line in $(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \\
            %(complete_var)s=bash_complete "$1"); do
        case $line in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) COMPREPLY+=("${line#plain,}") ;;
        esac
    done
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is completed, and that word, joined at `=`."""
        before, last = super().get_completion_args()
        words: list[str] = []
        for word in (*before, last):
            if words and (word == "=" or words[-1].endswith("=")):
                words[-1] += word
            else:
                words.append(word)
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """The type of a completion and what follows its key."""
        key, equals, value = item.value.partition("=")
        return f"{item.type},{value or key + equals}"


def script(shell: str, command: click.Command) -> str:
    """What one of `SHELLS` runs to complete a command."""
    made = get_completion_class(shell)
    assert made is not None
    return made(command, {}, "wattkeeper", VARIABLE).source()
