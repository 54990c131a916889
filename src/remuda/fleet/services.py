"""What a room declares to be metered: a service, as a table of its actions and of what each of them changes.

An action counts an operation, adds amounts to the time slot in which it happened, and changes states, which
last until they are changed again. metering/ counts the events of all services that rooms declare.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from remuda.base.errors import Broken
from remuda.keyspace.metering import METER_STATE

Params = Mapping[str, Any]
Term = Callable[[Params], int | None]
"""How much an action adds, by its parameters; None where it leaves a state as it is."""

STORAGE, OBJECTS = "storageUtilized", "numberOfObjects"
STATES = (STORAGE, OBJECTS)
"""The states that there are keys for."""
INCOMING, OUTGOING = "incomingBytes", "outgoingBytes"
SECONDS = "browserSeconds"


@dataclass(frozen=True, kw_only=True)
class Action:
    """One row of a service's table."""

    name: str
    """As it is pushed, such as `putObject`."""
    operation: str | None = ""
    """What is counted of it; by default its name with a capital letter. None: only what it adds and moves."""
    adds: Mapping[str, Term] = field(default_factory=dict)
    """Measure -> what is added to the time slot."""
    moves: Mapping[str, Term] = field(default_factory=dict)
    """State -> by how much it changes. A change by 0 is recorded too."""
    needs: tuple[str, ...] = ()
    """Parameters that must be given; those of NULLABLE may be null."""
    takes: tuple[str, ...] = ()
    """Parameters that may be given and are checked."""
    publishes: bool = False
    """Whether it changes something that others may want to hear of."""

    def __post_init__(self) -> None:
        if self.operation == "":
            object.__setattr__(self, "operation", self.name[0].upper() + self.name[1:])


@dataclass(frozen=True)
class Service:
    """Something that is metered: the table of its actions, and its measures in the order of an answer."""

    name: str
    actions: Sequence[Action]
    measures: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    timed: tuple[str, str] | None = None
    """For what lasts: the action that is counted at its start, and the one that adds its `seconds`."""
    by_herd: bool = False
    """Whether its events come from the herd itself: no account can push what it has used, or not used."""

    def __post_init__(self) -> None:
        METER_STATE(self.name, "service", self.name, STORAGE)  # Refuses a name that no key can have.
        for action in self.actions:
            if undeclared := {*action.adds} - {*self.measures} | {*action.moves} - {*self.states}:
                raise Broken(f"{self.name} does not declare {', '.join(sorted(undeclared))}")
        if {*self.states} - {*STATES}:
            raise Broken(f"There are no keys for the states of {self.name}")

    @cached_property
    def by_name(self) -> Mapping[str, Action]:
        return {action.name: action for action in self.actions}

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Every operation once, in the order of the table."""
        return tuple(dict.fromkeys(action.operation for action in self.actions if action.operation))

    @cached_property
    def counted(self) -> tuple[str, ...]:
        """All that a time slot has a number of."""
        return (*self.operations, *self.measures)


# What an action adds


def given(name: str) -> Term:
    """What a parameter says."""
    return lambda params: int(params[name])


def taken(name: str) -> Term:
    """What a parameter says, taken off."""
    return lambda params: -int(params[name])


def count_one(_params: Params) -> int:
    """One for each event."""
    return 1


def traffic(name: str, adds: Mapping[str, Term] | None = None, needs: tuple[str, ...] = ()) -> Action:
    """An action for what went through the front door in a second, in both directions."""
    return Action(
        name=name,
        operation=None,
        adds={**(adds or {}), INCOMING: given(INCOMING), OUTGOING: given(OUTGOING)},
        needs=(*needs, INCOMING, OUTGOING),
    )
