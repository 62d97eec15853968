# Every target sets up .venv by itself; nothing but Python 3.11+ with pip is needed before.
# On Linux: make demo TORCH_ARGS="--index-url ADDRESS" chooses torch's CPU build (README, Installing).

PYTHON ?= python3
TORCH_ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
# one per core, four at most (each holds torch and MLX); they take file by file in the order of tests/conftest.py
PROCESSES := --numprocesses logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: setup check test slow demo readme clean

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mlx-sentis needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 setup")'
	@echo "setting up .venv: some minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 $(TORCH_ARGS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test: $(READY)
	$(BIN)/python -m pytest -q $(PROCESSES)

slow: $(READY)
	$(BIN)/python -m pytest -q $(PROCESSES) -m slow

demo: $(READY)
	$(BIN)/mlx-sentis run --out runs/demo

# RUN=runs/demo renews the measured figures and the picture as well
readme: $(READY)
	$(BIN)/python tests/readme_blocks.py $(RUN)

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
