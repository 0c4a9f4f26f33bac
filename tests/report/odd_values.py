"""Values of JSON with another value somewhere."""

import copy


def places(value, path=()):
    """The paths of a value and of all in it; of a list, only of the first."""
    yield path
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value, path, new):
    """The value with another in a place; `...` takes it out."""
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return value
