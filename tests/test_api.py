"""The front door: what `import migrate` offers, in whatever order its parts are imported."""

import ast
import doctest
import json
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from inspect import isabstract, isfunction, signature
from pathlib import Path

import pytest

import migrate
from migrate.audit.document import report_of
from migrate.audit.query_set import load_questions
from migrate.cli.main import run as run_command
from migrate.report.summary import audit_summary
from migrate.steps.base import Step

ROOT = Path(__file__).parents[1]
FUNCTIONS = [
    name for name in migrate.__all__ if isfunction(getattr(migrate, name)) and not name.startswith(("load_", "open_"))
]
WITHOUT_EXAMPLE = {"forget", "rollback"}  # `switch` shows the way back


@pytest.fixture
def workplace(source_folder, beir, tmp_path, monkeypatch):
    """A folder with `my-store` and `my-beir`, and nothing else; the current one."""
    shutil.copytree(source_folder, tmp_path / "my-store")
    shutil.copytree(beir, tmp_path / "my-beir")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def done(source_folder, beir, tmp_path_factory):
    """A stitch, a translation and an audit by the front door."""
    folder = tmp_path_factory.mktemp("front")
    stitch = migrate.fit(source_folder, "tfidf:24", kind="ridge", sample=100)
    stitch.save(str(folder / "stitch"))
    translation = migrate.translate(str(source_folder), folder / "stitch", str(folder / "new"))
    migrate.reembed(source_folder, "tfidf:24", folder / "full")
    report = migrate.audit(folder / "new", folder / "full", judged=beir, source=source_folder)
    return folder, stitch, translation, report


def run(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_the_example_of_a_page_runs(page, workplace, capsys):
    (code,) = re.findall(r"```python\n(import migrate\n.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(code.strip().split("\n")) == 7  # one import, a blank line, five more
    exec(code.replace("openai:text-embedding-3-small", "tfidf:24"), {})
    assert re.search(r"^(translated alone: )?(SAFE|NOT SAFE|INCONCLUSIVE): ", capsys.readouterr().out, re.MULTILINE)
    assert (workplace / "new-store" / "index.faiss").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if ">>>" in str(getattr(migrate, name).__doc__)])
def test_the_example_of_a_function_runs(name, workplace):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    function = getattr(migrate, name)
    (example,) = finder.find(function, name, module=sys.modules[function.__module__])
    assert example.examples
    assert runner.run(example).failed == 0


def test_every_function_has_an_example():
    assert {name for name in FUNCTIONS if ">>>" not in getattr(migrate, name).__doc__} == WITHOUT_EXAMPLE


def test_all_that_is_offered_is_there():
    assert set(migrate.__all__) <= set(dir(migrate))
    assert {name for name in migrate.__all__ if hasattr(migrate, name)} == set(migrate.__all__)
    for name in FUNCTIONS:
        assert getattr(migrate, name) is getattr(sys.modules[getattr(migrate, name).__module__], name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = migrate.nonsense


IMPORTED_BEFORE = [
    "import migrate",
    "import migrate.pipeline",
    "import migrate; migrate.audit; import migrate.translate, migrate.check.stamp, migrate.report.suite",
    "import importlib, migrate; importlib.import_module('migrate.audit'); migrate.audit; migrate.fit",
]


@pytest.mark.slow
@pytest.mark.parametrize("first", IMPORTED_BEFORE)
def test_functions_are_functions_whatever_was_imported_before(first):
    names = "('audit', 'check', 'fit', 'translate', 'assess', 'compare', 'reembed', 'run', 'switch', 'inspect')"
    code = f"{first}\nimport migrate\nfor name in {names}:\n    print(type(getattr(migrate, name)).__name__)"
    assert run(code).split() == ["function"] * 10


@pytest.mark.slow
def test_submodules_of_the_same_name_can_be_imported_in_every_way():
    code = """
import migrate.audit.verdict as v
import migrate.translate as t
import migrate.check.stamp
import migrate
from migrate.audit import verdict
from migrate import audit, translate
from migrate.translate import batch_rows
assert v is verdict and v.verdict_of is migrate.audit.verdict.verdict_of
assert t.batch_rows is batch_rows and migrate.check.stamp.stamp_store
t._BATCH_BYTES = 7
assert batch_rows.__globals__["_BATCH_BYTES"] == 7
assert audit is migrate.audit and callable(audit) and translate is t
import migrate.inspect
from migrate.inspect import Inspect
assert callable(migrate.inspect) and migrate.inspect.Inspect is Inspect
"""
    run(code)


@pytest.mark.slow
def test_a_function_and_a_result_can_be_pickled(done):
    for name in ("audit", "fit", "assess"):
        assert pickle.loads(pickle.dumps(getattr(migrate, name))) is getattr(migrate, name)
    report = done[3]
    assert repr(pickle.loads(pickle.dumps(report.verdict))) == repr(report.verdict)


def test_a_type_checker_sees_all_that_is_offered():
    tree = ast.parse(Path(migrate.__file__).read_text())
    seen = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module.startswith("migrate.")]
    offered = [name.name for node in seen for name in node.names if name.name != "__version__"]
    assert sorted(offered) == migrate.__all__  # that it is used rightly, mypy tells of `examples`


def test_results_print_in_one_line_the_answer_first(done, source_folder):
    _, stitch, translation, report = done
    assert repr(report).startswith(f"<AuditReport {report.verdict.outcome}: retention ")
    pairs = "<FittedStitch ridge: tfidf:32 -> tfidf:24, 32 -> 24 dimensions, 100 pairs, held-out"
    assert repr(stitch).startswith(pairs)
    assert "150 vectors, 32 -> 24 dimensions, 100 " in repr(translation)
    store = migrate.open_store(source_folder)
    assert repr(store) == f"<FaissStore {source_folder}: IndexFlatIP, 150 x 32, ip, tfidf:32>"
    assert "\n" not in "".join(map(repr, (*done[1:], store)))
    back = migrate.fit(source_folder, "tfidf:24", kind="ridge", sample=100, direction="query")
    assert repr(back).startswith("<FittedStitch ridge: tfidf:24 -> tfidf:32, ")


def test_a_printed_report_is_the_table_of_the_screen(done, capsys):
    report = done[3]
    print(report)
    assert capsys.readouterr().out == f"{report}\n"
    assert "--" not in str(report) and "\x1b" not in str(report)
    assert audit_summary(report).startswith(f"{report}\n")


@pytest.mark.slow
def test_a_run_leaves_what_the_command_leaves_and_audits_again(workplace):
    words = {"judged": "my-beir", "kind": "ridge", "sample": 100, "reference": "pool"}
    made = migrate.run("my-store", "tfidf:24", "made", **words)
    assert {"stitch", "store", "report.json", "report.html"} <= {path.name for path in Path("made").iterdir()}
    assert made.stitch.stitch.spec == "ridge" and made.translation.n_true == 100
    assert made.report.audit.arm("stay").against is not None and made.report.audit.pool is not None
    assert migrate.run("my-store", "tfidf:24", "made", **words).report.verdict == made.report.verdict
    with pytest.raises(migrate.LeadMigrateError, match='is not "auto", "pool" or "build"'):
        migrate.run("my-store", "tfidf:24", "other", **{**words, "reference": "made/reference"})


@pytest.mark.slow
def test_a_switch_takes_a_report_as_proof_and_goes_back(workplace):
    made = migrate.run("my-store", "tfidf:24", "made", judged="my-beir", reference="pool", kind="ridge", sample=100)
    verdict = replace(made.result.verdict, outcome=migrate.Outcome.NOT_SAFE)
    with pytest.raises(migrate.LeadMigrateError, match="the report: this report says NOT"):
        migrate.switch("my-store", "made/store", report_of(replace(made.result, verdict=verdict)))
    kept = migrate.Bounds(0.99, 0.97, 1.0)
    verdict = replace(made.result.verdict, outcome=migrate.Outcome.SAFE, retention=kept, gain_over_stay=None, doubts=())
    examination = replace(made.result.examination, findings=())
    safe = report_of(replace(made.result, verdict=verdict, examination=examination))
    done = migrate.switch("my-store", "made/store", safe)
    assert done.proven and done.old == str(workplace / "my-store")
    assert migrate.inspect("my-store")["dimension"] == 24
    assert migrate.rollback("my-store").old_model == "tfidf:32"
    assert not migrate.switch(migrate.open_store("my-store"), "made/store", unproven=True).proven
    migrate.forget("my-store")
    with pytest.raises(migrate.LeadMigrateError, match="nothing was switched"):
        migrate.rollback("my-store")
    assert migrate.inspect("my-store")["dimension"] == 24


def test_a_stamp_and_what_inspect_finds_are_those_of_the_commands(workplace, done, capsys):
    Path("my-store/lead-migrate.json").unlink()
    assert migrate.inspect("my-store")["model"] == "unknown (no manifest)"
    stamped = migrate.stamp("my-store", "tfidf:32")
    assert stamped.checked.compatible and stamped.path == Path("my-store/lead-migrate.json")
    for place in ("my-store", str(done[0] / "stitch"), "."):
        assert run_command(["inspect", place, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == migrate.inspect(place)
    assert migrate.inspect(migrate.open_store("my-store"))["model"] == "tfidf:32"


def test_results_show_themselves_in_a_notebook(done, source_folder):
    _, stitch, translation, report = done
    assert f"{report.verdict.outcome}: retention " in report._repr_html_()
    assert ">translated</th>" in report._repr_html_()
    assert ">* ridge</th>" in stitch._repr_html_()
    assert "<td>100</td>" in translation._repr_html_()
    check = migrate.check(source_folder, "tfidf:24")
    assert "not compatible with tfidf:24" in check._repr_html_()
    compared = migrate.compare(source_folder, translation.path)
    assert '<th scope="col">CKA</th>' in compared._repr_html_()
    assessed = migrate.assess(source_folder, "openai:text-embedding-3-small")
    assert '<th scope="col">price</th>' in assessed._repr_html_()
    assert "<script" not in report._repr_html_()


def test_tables_go_to_pandas(done, source_folder, monkeypatch):
    pytest.importorskip("pandas")
    report = done[3]
    arms = report.to_pandas().set_index("arm")
    assert list(arms.index) == [arm.name for arm in report.audit.arms]
    assert arms.loc["translated", "retention"] == report.verdict.retention.estimate
    queries = report.to_pandas("queries")
    assert len(queries) == len(report.audit.query_ids) * len(report.audit.arms)
    means = queries.groupby("arm")["nDCG@10"].mean()
    assert means["translated"] == pytest.approx(report.audit.arm("translated").means["nDCG@10"])
    with pytest.raises(migrate.LeadMigrateError, match="'rows' are no rows of an audit"):
        report.to_pandas("rows")
    plans = migrate.assess(source_folder, "openai:text-embedding-3-small").to_pandas()
    assert plans.loc[0, "documents"] == 150
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(migrate.LeadMigrateError, match=r"pip install 'lead-migrate\[pandas\]'"):
        report.to_pandas()


def test_queries_of_one_kind_and_options_that_belong_together_are_named(done, beir):
    translation = done[2]
    with pytest.raises(migrate.LeadMigrateError, match="no queries are named"):
        migrate.audit(translation.path)
    for judged in (beir, load_questions(str(beir))):
        with pytest.raises(migrate.LeadMigrateError, match="exclude each other"):
            migrate.audit(translation.path, judged=judged, queries="synthetic")
    for depth in ("9", "", "ten", "-20", "20,50", "²0"):
        with pytest.raises(migrate.LeadMigrateError, match=f"--reference pool:{depth}"):
            migrate.audit(translation.path, f"pool:{depth}", judged=beir)


def test_arguments_that_do_not_fit_are_told_by_the_name_of_the_function():
    with pytest.raises(TypeError, match=r"^fit\(\): .* 'target'$"):
        migrate.fit("store")
    with pytest.raises(TypeError, match=r"^reembed\(\): .* 'budget'$"):
        migrate.reembed("store", "tfidf:24", "new", budget="10%")


def steps():
    """Every kind of step that a function of the front door makes."""
    for name in FUNCTIONS:
        getattr(migrate, name)
    kinds = list(Step.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [kind for kind in kinds if not isabstract(kind)]


def test_a_step_holds_what_was_asked_for_and_its_function_takes_the_rest_too():
    kinds = {kind.__name__.lower(): kind for kind in steps()}
    assert kinds.keys() >= {"audit", "fit", "run", "choose", "translate", "reembed", "sync", "embed", "assess", "check"}
    for name, kind in kinds.items():
        asked = [it.name for it in fields(kind)]
        rest = list(signature(kind.run).parameters)[1:]
        assert not {"progress", "cap", "announce", "margin_from", "cached"} & set(asked)
        taken = signature(getattr(migrate, name)).parameters
        assert sorted(taken) == sorted([*asked, *rest]) and list(taken)[len(asked) :] == rest
        assert all(f"\n{it}\n    " in getattr(migrate, name).__doc__ for it in taken)


@pytest.mark.slow
def test_whoever_listens_to_a_function_is_told(done, beir):
    folder, *_ = done
    stages, grown = set(), []
    report = migrate.audit(
        folder / "new", judged=beir, progress=lambda stage, *_: stages.add(stage), announce=grown.append
    )
    assert stages
    assert sum(step.documents for step in grown) == report.audit.pool.documents
