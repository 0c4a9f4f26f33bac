"""How `benchmarks/ten_million.py` compares outputs."""

import ten_million


def test_outputs_are_compared_by_all_their_files_at_any_depth(tmp_path):
    assert ten_million.digest_of(tmp_path / "nothing") == ""
    digests = set()
    for number, (name, content) in enumerate([("a", "1"), ("a", "2"), ("b", "1"), ("deep/a", "1"), ("deep/a", "2")]):
        path = tmp_path / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_text(content)
        digests.add(ten_million.digest_of(tmp_path / str(number)))
    assert len(digests) == 5
    assert ten_million.digest_of(tmp_path / "0") in digests
