from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest

from migrate.errors import InputError
from migrate.reading import DEEPEST, MalformedError, expect, parse_json, parse_toml, read_json, read_table, typed

MALFORMED = {
    "nothing": b"",
    "half": b"{",
    "other bytes": b"\xff\xfe\x00",
    "nested lists": b"[" * 100_000,
    "nested tables": b'{"a":' * 100_000,
    "nested a little too deeply": b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
    "a number of too many digits": b"1" * 5_000,
    "a number that no float is near": b"[1" + b"0" * 400 + b"]",
    "half of a character": b'{"\\ud800": 1}',
    "half of a character of a text": '["\ud800"]',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_json_is_a_value_or_malformed(name):
    with pytest.raises(MalformedError) as caught:
        parse_json(MALFORMED[name])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


@pytest.mark.parametrize("start", [0, 1, 150, 298, 299, 300, 301])
def test_a_number_that_no_float_is_near_is_found_wherever_it_stands(start):
    text = f'["{"x" * start}", 1{"0" * 302}]'
    with pytest.raises(MalformedError, match="more than 1,000 bits"):
        parse_json(text.encode())


def test_sound_json_is_read():
    assert parse_json(b"\xef\xbb\xbf[1]") == [1]
    deep = b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1)
    assert parse_json(deep) is not None
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xa9"]}') == {"a": [1, 2.5, None, "é"]}
    assert parse_json("1000000000000000019884624838656") == 1000000000000000019884624838656


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5_000, ".".join("a" * 5_000) + " = 1", "x = " + "9" * 5_000, "x = 0x" + "f" * 9_999, "\0"]
)
def test_toml_is_tables_or_malformed(text):
    with pytest.raises(MalformedError) as caught:
        parse_toml(text.encode())
    assert "\n" not in str(caught.value)


def test_a_device_is_not_read(tmp_path):
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="this is a pipe, a socket or a device"):
        read_json(tmp_path / "endless")
    (tmp_path / "list").write_text("[1]")
    with pytest.raises(MalformedError, match=r"\[1\]"):
        read_table(tmp_path / "list")


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None = None


@dataclass(frozen=True)
class Whole:
    count: int
    kind: Literal["one", "two"]
    colour: Colour
    parts: tuple[Part, ...]
    is_done: bool = False
    facts: Mapping[str, int] = field(default_factory=dict)
    other: Any = None


SOUND = {"count": 3, "kind": "one", "colour": "red", "parts": [{"name": "a"}, {"name": "b", "share": 1}]}


def test_a_table_becomes_a_dataclass():
    made = typed(Whole, {**SOUND, "facts": {"x": 1}, "other": [1]})
    assert made == Whole(3, "one", Colour.RED, (Part("a"), Part("b", 1)), False, {"x": 1}, [1])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"count": "3"}, "'count' must be a whole number, and is '3'"),
        ({"count": True}, "'count' must be a whole number"),
        ({"count": 1 << 70}, "'count' must be a whole number of 64 bits"),
        ({"kind": "three"}, "'kind' must be one of one, two"),
        ({"kind": ["one"]}, "'kind' must be one of"),
        ({"colour": "blue"}, "'colour' must be one of red"),
        ({"parts": {}}, "'parts' must be a list"),
        ({"parts": [{"name": 1}]}, r"'parts\[0\].name' must be a text"),
        ({"parts": [{}]}, r"'parts\[0\].name' is missing"),
        ({"parts": [[]]}, r"'parts\[0\]' must be a table"),
        ({"is_done": 0}, "'is_done' must be true or false"),
        ({"facts": {"x": "y"}}, "'facts.x' must be a whole number"),
        ({"surprise": 1}, "'surprise' is not known"),
    ],
)
def test_values_of_other_types_are_named(changes, told):
    with pytest.raises(MalformedError, match=told):
        typed(Whole, {**SOUND, **changes})


def test_a_table_may_have_more_than_its_shape():
    shape = {"a": {"b": tuple[str, str]}, "c": int | None}
    facts = {"a": {"b": ["x", "y"]}, "c": None, "d": 7}
    assert expect(facts, shape) == facts
    for wrong, told in (
        ({**facts, "a": {"b": ["x"]}}, "'a.b' must be a list of 2"),
        ({"a": facts["a"]}, "'c' is missing"),
        ({**facts, "a": 7}, "'a' must be a table"),
        ([], "it must be a table"),
        ([{"name": "x" * 50}] * 9, r"it must be a table, and is \[\{.{1,95}\.\.\.$"),
    ):
        with pytest.raises(MalformedError, match=told):
            expect(wrong, shape)
