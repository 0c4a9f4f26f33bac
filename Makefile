# Everything sets itself up: a new clone needs Python 3.11 and nothing else.
PYTHON ?= python3
BIN := .venv/bin
# Workers and the commands that tests start read compiled modules rather than compile each again. OpenBLAS rounds alike
# on all x86 processors with AVX2, as the golden figures have it.
TEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
# Not compiled: the demo leaves most of what is installed unread, torch first of all.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable

.PHONY: demo quick test lint docs bench clean

demo: .venv/with-nothing
	$(BIN)/lead-migrate demo

quick: .venv/with-test
	$(TEST) -m "not slow"

test: .venv/with-test
	$(TEST) --durations 30 --durations-min 5

lint: .venv/with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file .ci/mkdocs.yml
	@echo "the pages are in build/site: open build/site/index.html"

bench: .venv/with-test
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache

.venv/with-nothing: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing lead-migrate into .venv (some minutes the first time)"
	$(INSTALL) .
	@touch $@

.venv/with-%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing lead-migrate with its extra '$*' into .venv (some minutes the first time)"
	$(INSTALL) '.[$*]'
	@touch $@
