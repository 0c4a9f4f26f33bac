import re

import pytest

from migrate import errors

CLASSES = [value for value in vars(errors).values() if isinstance(value, type)]


def drawn_tree():
    """(name, exit code, name of the parent) of each line of the drawing in the module's docstring."""
    above = {}
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+Error)\s+(\d+)", line)
        if match:
            depth = len(match[1]) // 4
            above[depth] = match[2]
            yield match[2], int(match[3]), above[depth - 1] if depth else "Exception"


def test_the_drawing_shows_every_class_once():
    drawn = [name for name, _, _ in drawn_tree()]
    assert sorted(drawn) == sorted(cls.__name__ for cls in CLASSES)


@pytest.mark.parametrize(("name", "code", "parent"), list(drawn_tree()))
def test_the_tree_is_as_drawn(name, code, parent):
    cls = getattr(errors, name)
    assert cls.exit_code == code
    assert [base.__name__ for base in cls.__bases__] == [parent]


def test_no_failure_is_taken_for_a_success_or_a_finding():
    assert [cls for cls in CLASSES if cls.exit_code in (0, 1, 3)] == [
        errors.InconclusiveError,
        errors.DocumentQueriesError,
    ]
