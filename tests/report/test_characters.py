import json

from migrate.report.characters import for_markup, printable, printable_json, printable_lines

HOSTILE = "a\x00\x1b[31m\x07\x7f\x85\x9b31m\u2028\u2029\u202e\u2066\u200f\udcffb"


def test_a_terminal_gets_nothing_to_obey():
    shown = printable(HOSTILE)
    assert shown == r"a\x00\x1b[31m\x07\x7f\x85\x9b31m\u2028\u2029\u202e\u2066\u200f\udcffb"
    assert printable("naïve\u00a0façade\u3000日本 🙂") == "naïve\u00a0façade\u3000日本 🙂"
    assert printable("a\nb\rc") == r"a\nb\rc"
    assert printable_lines("a\nb\rc") == "a\nb\\rc"


def test_json_on_a_terminal_says_the_same():
    document = {"name": HOSTILE + "\U000e0001é", "lines": ["a\nb"]}
    text = json.dumps(document, indent=2, ensure_ascii=False)
    shown = printable_json(text)
    assert json.loads(shown) == document
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "é" in shown


def test_markup_gets_no_character_that_it_forbids_or_that_reorders_text():
    assert for_markup("a\x00\x1b\x85\ufffe\udcff\tb\n") == "a\ufffd\ufffd\ufffd\ufffd\ufffd\tb\n"
    assert for_markup("é日🙂") == "é日🙂"
    marks = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    assert for_markup(f"a{marks}b") == f"a{chr(0xFFFD) * len(marks)}b"
    assert for_markup("שלום مرحبا") == "שלום مرحبا"
