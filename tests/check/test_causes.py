"""Each cause, in a store built for it with the real model by its own library, and what a check says of it."""

from types import SimpleNamespace

import numpy as np
import pytest

from migrate.check import Cause, check_store

pytestmark = pytest.mark.slow

LONG = "The quick brown fox jumps over the lazy dog while number {} watches and counts to {}. "


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def same(c):
    return c.texts, c.plain


def with_prefix(prefix):
    return lambda c: (c.texts, c.by_hand.embed([prefix + text for text in c.texts]))


def rolled(c):
    return c.texts, np.roll(c.plain, 1, axis=0)


def by_first_token(c):
    return c.texts, unit(np.stack([tokens[0] for tokens in c.by_hand.tokens(c.texts)]))


def unnormalised(c):
    return c.texts, np.stack([tokens.mean(axis=0) for tokens in c.by_hand.tokens(c.texts)])


def cut_short(c):
    long = [" ".join(LONG.format(row, row * step) for step in range(7)) + c.texts[row] for row in range(2)]
    texts = [*long, *c.texts[2:8]]
    return texts, c.by_hand.cut(texts, 128)


def half_foreign(c):
    return c.texts, np.concatenate([c.plain[:22], c.lexical(c.texts)[22:]])


def half_prefixed(c):
    return c.texts, np.concatenate([c.by_hand.embed(["passage: " + text for text in c.texts[:18]]), c.plain[18:]])


def relative(c):
    """As another layer of a network, or a fine-tuned one, is: it leans towards the model."""
    return unit(0.4 * c.plain + unit(c.lexical(c.texts)))


def some_edited(c):
    return [*(" ".join(text.split()[:-4]) + " now" for text in c.texts[:9]), *c.texts[9:]], c.plain


CASES = {
    "the model's own": (same, Cause.COMPATIBLE, "all 14 sampled documents"),
    "another dimension": (lambda c: (c.texts, np.hstack([c.plain, c.plain])), Cause.DIMENSION, "the model gives 384"),
    "the first 128 dimensions": (lambda c: (c.texts, c.plain[:, :128]), Cause.SHORTENED, "first 128 of"),
    "another model": (lambda c: (c.texts, c.lexical(c.texts)), Cause.OTHER_MODEL, "nothing in common"),
    "a relative of the model": (lambda c: (c.texts, relative(c)), Cause.OTHER_MODEL, "nothing in common"),
    "a part by a relative": (
        lambda c: (c.texts, np.concatenate([c.plain[:22], relative(c)[22:]])), Cause.MIXED, "another model"
    ),
    "vectors at random": (
        lambda c: (c.texts, np.random.default_rng(1).normal(size=(36, 384))), Cause.OTHER_MODEL, "nothing in common"
    ),
    "ids one row off": (rolled, Cause.OUT_OF_STEP, "in another row, such as that of document"),
    "no prefix": (same, Cause.MISSING_PREFIX, "without the prefix 'passage: '"),
    "prefix twice": (with_prefix("passage: passage: "), Cause.DOUBLED_PREFIX, "'passage: ' twice"),
    "first token": (by_first_token, Cause.POOLING, "cls pooling"),
    "cut at 128": (cut_short, Cause.LENGTH, "cut at 128 tokens instead of 256"),
    "boilerplate before": (with_prefix("Confidential draft: "), Cause.NEAR, "most are near it"),
    "not normalised": (unnormalised, Cause.NORMS, "not normalised in the store"),
    "a part by another model": (half_foreign, Cause.MIXED, "another model"),
    "a part without prefix": (half_prefixed, Cause.MIXED, "without the prefix 'passage: '"),
    "texts edited since": (some_edited, Cause.MIXED, "these were changed since"),
}  # fmt: skip
WITH_PREFIX = {"no prefix", "prefix twice", "a part without prefix"}


@pytest.fixture(scope="module")
def context(texts, plain, by_hand, lexical):
    return SimpleNamespace(texts=texts, plain=plain, by_hand=by_hand, lexical=lexical)


@pytest.mark.parametrize("name", CASES)
def test_each_cause_is_told_from_the_others(name, context, minilm, prefixed, make_store):
    build, cause, words = CASES[name]
    store = make_store(*build(context))
    found = check_store(store, prefixed if name in WITH_PREFIX else minilm, sample=14)

    assert found.cause is cause, found.sentence
    assert words in found.sentence
    assert found.compatible == (cause is Cause.COMPATIBLE) == all(finding.ok for finding in found.findings)
