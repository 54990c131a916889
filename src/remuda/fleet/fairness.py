"""How memory is shared among accounts that do not wait for each other. Pure."""


def leaves_as_much(size: int, *, theirs: int, held: int, room: int) -> bool:
    """Whether an account that holds `theirs` and takes `size` more leaves others as much room as it has then.
    So one gets half of the room, however much it asks for, and the next one half of what is left."""
    return theirs + size <= room - (held + size)
