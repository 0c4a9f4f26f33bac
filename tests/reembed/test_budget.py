import numpy as np
import pytest

from migrate.cost import Estimate, Tally
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import TokenCounter
from migrate.errors import UsageError
from migrate.selection.sample import DocumentRow
from migrate.steps.translate.choice import Budget
from migrate.vectors import Document

RANKED = [DocumentRow(row, Document(f"d{row}", f"{row:3} " * 100)) for row in range(1_000, 1_090)]  # 100 tokens each
PAID = Estimate(10, tokens=1_000)


class Words(TokenCounter):
    """A token a word."""

    def count(self, texts):
        return np.array([len(text.split()) for text in texts], dtype=np.int64)


def tally(price):
    return Tally(Profile("", price_usd_per_mtok=price, counter=Words()))


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("10%", 0.1, "share"),
        ("0.5%", 0.005, "share"),
        ("100%", 1, "share"),
        ("5000", 5000, "documents"),
        ("5,000", 5000, "documents"),
        ("$20", 20, "usd"),
        ("$0.25", 0.25, "usd"),
        ("300,000tok", 300_000, "tokens"),
    ],
)
def test_a_budget_is_a_share_a_number_dollars_or_tokens(text, amount, unit):
    found = Budget.parse(text)
    assert (found.amount, found.unit) == (pytest.approx(amount), unit)
    assert Budget.parse(str(found)) == found


@pytest.mark.parametrize(
    "text", ["", "0", "0%", "$0", "101%", "-5", "12.5", "$10%", "ten", "1e3", "10 %%", "$5tok", "1.5tok", "0tok"]
)
def test_what_is_no_budget_is_told_what_one_looks_like(text):
    with pytest.raises(UsageError, match=r"not a budget.*10% .* 5000 .* \$20"):
        Budget.parse(text)


@pytest.mark.parametrize(("text", "count"), [("15%", 5), ("100%", 90), ("14", 4), ("5000", 90)])
def test_what_was_paid_counts(text, count):
    chosen = list(Budget.parse(text).choose(RANKED, PAID, 100, tally(None)))
    assert chosen == RANKED[:count]


@pytest.mark.parametrize(("text", "price"), [("1750tok", None), ("$0.0035", 2.0)])  # 1,000 tokens are gone
def test_tokens_and_dollars_buy_as_many_documents_as_they_allow(text, price):
    assert list(Budget.parse(text).choose(RANKED, PAID, 100, tally(price))) == RANKED[:7]


def test_dollars_need_a_price():
    assert list(Budget.parse("$5").choose(RANKED, PAID, 100, tally(0.0))) == list(RANKED), "a free model has no end"
    with pytest.raises(UsageError, match=r"a budget of \$5 needs a model with a known price"):
        Budget.parse("$5").choose(RANKED, PAID, 100, tally(None))


@pytest.mark.parametrize(
    ("text", "paid"), [("10%", ""), ("10", ""), ("$0.002", ""), ("1000tok", "about 1,000 tokens are ")]
)
def test_a_budget_that_is_used_up_is_told(text, paid):
    with pytest.raises(UsageError, match=rf"{paid}paid for already.* larger budget"):
        Budget.parse(text).choose(RANKED, PAID, 100, tally(2.0))
