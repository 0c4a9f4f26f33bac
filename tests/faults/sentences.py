"""What the tool says of each fault: the golden file `sentences.json`, a line for each row of the table.

`*` stands for what varies. `python tests/faults/record_sentences.py --write` writes anew what is no longer said so.
"""

import json
import re
from difflib import SequenceMatcher
from pathlib import Path

GOLDEN = Path(__file__).with_name("sentences.json")
ANYTHING = "*"
VARIES = re.compile(r"(?<=127\.0\.0\.1:)\d+|\b[0-9a-f]{12,}\b|\b\d+(\.\d+)?(?= s$)")
"""What is another in the next run: ports, hashes, seconds."""


def golden():
    """The sentences by the names of faults."""
    return json.loads(GOLDEN.read_text("utf-8"))


def lines_of(outcome, fault):
    """The lines of which one tells of the fault: of an error the only one that there is."""
    return outcome.complaints if fault.is_error else outcome.lines


def is_said(sentence, lines):
    """Whether one of the lines is the sentence; whether there is none, where nothing is said."""
    pattern = re.compile(".*".join(map(re.escape, sentence.split(ANYTHING))))
    return any(map(pattern.fullmatch, lines)) if sentence else not lines


def sentence_of(states, old):
    """The sentence that fits each state, a list of lines; the old one where that does."""
    if old is not None and all(is_said(old, lines) for lines in states):
        return old
    found = [_nearest(lines, old or "") for lines in states if lines]
    if not found:
        return ""
    sentence = VARIES.sub(ANYTHING, found[0])
    for line in found[1:]:
        sentence = _common(sentence, VARIES.sub(ANYTHING, line))
    return sentence


def _nearest(lines, old):
    return max(lines, key=lambda line: SequenceMatcher(None, old, line).ratio())


def _common(sentence, line):
    """What two sentences have in common, word by word."""
    words, others = sentence.split(" "), line.split(" ")
    common = []
    for tag, start, end, _, _ in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        part = words[start:end] if tag == "equal" else [ANYTHING]
        common += part if part != common[-1:] else []
    return " ".join(common)


def write(found):
    """Write the golden file, with the sentences that were found in the place of those of their faults."""
    GOLDEN.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", "utf-8")
