"""Print what the first audit among the reports of a folder found, as outputs of a step: `found.py FOLDER`.

Read are `1.json`, `2.json` ... in this order; the first that is of an audit counts. Without one nothing is printed.
"""

import json
import sys
from pathlib import Path


def outputs_of(folder: Path) -> dict[str, str]:
    """Verdict, retention and lower bound of the plan that was asked for, and the page that shows all of it."""
    for path in sorted(folder.glob("*.json"), key=lambda path: int(path.stem)):
        document = json.loads(path.read_bytes())
        if document["kind"] == "audit":
            plan = document["plan"]
            bounds = document["family"].get(plan["name"], document["verdict"]["retention"])
            return {
                "verdict": plan["outcome"],
                "retention": figure(bounds["estimate"]),
                "lower-bound": figure(bounds["lower"]),
                "report": str(path.with_suffix(".html")),
            }
    return {}


def figure(share: float | None) -> str:
    """A share with four decimals; empty where it was not measured."""
    if share is None:
        return ""
    return f"{share:.4f}"


if __name__ == "__main__":
    for name, value in outputs_of(Path(sys.argv[1])).items():
        print(f"{name}={value}")
