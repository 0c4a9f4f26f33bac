"""What is read of stores of all kinds: each of their files in turn is a pipe, a device, a socket or a folder."""

import endless_reads
import pytest
from children import call_in_child
from kinds import kind_class

pytestmark = pytest.mark.slow
KINDS = ("faiss", "arrays", "parquet", "langchain", "chroma", "qdrant", "milvus", "lancedb", "sqlite-vec")


@pytest.mark.parametrize("kind", [*KINDS, *endless_reads.OWN])
def test_no_reading_waits_for_ever_or_fills_the_memory_or_the_disk(kind, tmp_path):
    if kind not in endless_reads.OWN:
        kind_class(kind)
    endings = call_in_child(endless_reads.endings, kind, tmp_path)
    wrong = {
        place: ended
        for place, ended in endings.items()
        if not (ended == "the same" or ended.startswith(("4: ", "5: "))) or "\n" in ended or "too large" in ended
    }
    assert not wrong
    refused = [
        ended for ended in endings.values() if ended.startswith("4: ") and "a pipe, a socket or a device" in ended
    ]
    assert len(refused) >= 12, "confidence, checksums, manifest: four times each"
