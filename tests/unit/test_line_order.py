"""The order in which a line is shown, against the rule by which it is served, told step by step."""

from hypothesis import given
from hypothesis import strategies as some

from remuda.fleet.line import _in_order, _parts

ONE_BROWSER = 10**12

accounts = some.dictionaries(
    some.sampled_from("abcdef"),
    some.tuples(some.integers(0, 4), some.integers(1, 5)),
    min_size=1,
)


@given(accounts, some.randoms(use_true_random=False))
def test_the_order_that_is_shown_is_that_of_serving_who_has_the_fewest(
    line: dict[str, tuple[int, int]], dice: object
) -> None:
    names = sorted(line)
    dice.shuffle(names)  # type: ignore[attr-defined]
    turns = {name: line[name][0] * ONE_BROWSER + moment for moment, name in enumerate(names)}
    tickets = {name: [f"{name}{rank}" for rank in range(line[name][1])] for name in line}

    shown = _in_order("line", [(name, turns[name], [(each, 0.0) for each in tickets[name]]) for name in line])

    assert [each.ticket for each in shown] == serve_all(turns, tickets)
    assert [each.position for each in shown] == list(range(1, len(shown) + 1))


@given(accounts, some.randoms(use_true_random=False))
def test_the_position_of_one_ticket_is_that_in_the_order_of_all(
    line: dict[str, tuple[int, int]], dice: object
) -> None:
    names = sorted(line)
    dice.shuffle(names)  # type: ignore[attr-defined]
    turns = [(name, float(line[name][0] * ONE_BROWSER + moment)) for moment, name in enumerate(names)]
    parts = _parts(turns, {name: waiting for name, (_, waiting) in line.items()})

    order = _in_order(
        "line",
        [(name, turn, [(f"{name}{rank}", 0.0) for rank in range(line[name][1])]) for name, turn in turns],
    )

    positions = {
        f"{own.account}{rank}": 1 + sum(part.count_before(own, rank) for part in parts)
        for own in parts
        for rank in range(own.waiting)
    }
    assert positions == {each.ticket: each.position for each in order}


def serve_all(turns: dict[str, int], tickets: dict[str, list[str]]) -> list[str]:
    """One after the other: whoever is served has one browser more, since now."""
    turns, now, served = dict(turns), len(turns), []
    waiting = {name: list(of_account) for name, of_account in tickets.items()}
    while any(waiting.values()):
        first = min((name for name in waiting if waiting[name]), key=turns.__getitem__)
        served.append(waiting[first].pop(0))
        turns[first] = (turns[first] // ONE_BROWSER + 1) * ONE_BROWSER + now
        now += 1
    return served
