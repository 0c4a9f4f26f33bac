# Everything sets itself up: a new clone needs Python 3.11 and nothing else.
PYTHON ?= python3
BIN := .venv/bin
# OpenBLAS rounds alike on all x86 processors with AVX2, as the golden figures have it.
ifeq ($(shell uname -m),x86_64)
ROUNDING = OPENBLAS_CORETYPE=Haswell
endif
# Workers and the commands that tests start read compiled modules rather than compile each again.
TEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(ROUNDING) $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
# Not compiled: the demo leaves most of what is installed unread, torch first of all.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable

.PHONY: demo quick slow coverage test lint docs bench dist light image clean

demo: .venv/with-nothing
	$(BIN)/lead-migrate demo

quick: .venv/with-test
	$(TEST) -m "not slow" $(ARGS)

slow: .venv/with-test
	$(TEST) -m slow $(ARGS)

# The share of the branches that the quick tests take; below the floor of pyproject.toml it fails.
coverage: .venv/with-test
	$(TEST) -m "not slow" --quiet --cov --cov-report=
	$(BIN)/coverage report --format=total

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

dist:
	test -x build/tools/bin/python || $(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=6.1'
	build/tools/bin/python .ci/dist.py

# What `lead-migrate check` needs of stores whose manifest answers, in an environment of its own, and how large that is.
light:
	rm -rf build/light
	$(PYTHON) -m venv build/light
	build/light/bin/pip install --quiet --disable-pip-version-check --requirement light.txt
	build/light/bin/pip install --quiet --disable-pip-version-check --no-deps .
	build/light/bin/lead-migrate --version
	@du -sh build/light

# Both containers, which needs Docker. Each moves a store without a network: as its own user in its own volume, and as the
# user of a folder that is mounted, where another container finds what the first has left.
image:
	docker build --tag lead-migrate .
	docker build --tag lead-migrate:full --target full .
	set -e; for image in lead-migrate lead-migrate:full; do \
	  rm -rf build/image; mkdir -p build/image; \
	  docker run --rm --network none $$image demo -o demo; \
	  docker run --rm --network none --user "$$(id -u)" --volume "$(CURDIR)/build/image:/stores" $$image demo -o demo; \
	  docker run --rm --network none --volume "$(CURDIR)/build/image:/stores" $$image inspect demo/store; \
	done
	docker image ls lead-migrate

clean:
	rm -rf .venv build dist .coverage* *.egg-info .pytest_cache .mypy_cache .ruff_cache

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
