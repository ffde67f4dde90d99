"""A journal of decisions about anything."""

from wattkeeper.sim.kernel.journal import Journal
from wattkeeper.sim.kernel.spool import Spool

ROUNDS = 30_000  # more than are held before they are put aside


def journal_of_rounds(seen_last: int) -> Journal[str]:
    journal: Journal[str] = Journal(Spool())
    journal.add_maker("pick", "at-random")
    pick = journal.maker_of("pick")
    for number in range(ROUNDS):
        seen = seen_last if number == ROUNDS - 1 else 7
        journal.add(60.0 * number, pick, number, 1, journal.index_choice(f"{number % 3}"), seen)
    return journal


def test_rounds_are_read_as_columns() -> None:
    journal = journal_of_rounds(7)
    parts = list(journal.decisions())
    assert len(parts) > 1
    subjects = [number for part in parts for number in part["subject"].tolist()]
    assert subjects == list(range(ROUNDS))
    assert set(parts[0]) == {"time_s", "subject", "attempt", "chose", "maker", "saw"}
    choices = list(journal.choices)
    assert [choices[code] for code in parts[-1]["chose"][-3:]] == ["0", "1", "2"]
    assert parts[-1]["time_s"][-1] == 60.0 * (ROUNDS - 1)


def test_the_digest_is_of_what_was_seen() -> None:
    one, other = (
        [digest for part in journal_of_rounds(seen).decisions() for digest in part["saw"].tolist()]
        for seen in (7, 8)
    )
    assert one[:-1] == other[:-1]
    assert one[-1] != other[-1]
    assert len(set(one)) == ROUNDS, "subject and time are part of it"


def test_a_noted_view_of_any_kind_is_digested() -> None:
    digests = []
    for view in ("ab", "ab", "x" * 5000):
        journal: Journal[str] = Journal(Spool())
        journal.add_maker("select", "fastest")
        journal.note(1.0, "select", 4, 2, (view,), "first")
        (columns,) = journal.decisions()
        assert (columns["subject"].item(), columns["attempt"].item()) == (4, 2)
        digests.append(columns["saw"].item())
    assert digests[0] == digests[1] != digests[2]
