# Long tests, and tests with packages of other projects.

# When, and on which commit, it last passed on this machine.
FULL_RUN := $(CACHE)/test-full
.PHONY: test-full run-test-full
test-full: ## Run all tests with their whole sweeps, and all broken variants (hours)
	@echo "test-full last passed here: $$(cat '$(FULL_RUN)' 2>/dev/null || echo never)"
	@$(TIMES) report -- env TURBIDITE_WHOLE=1 $(MAKE) --no-print-directory run-test-full
	@echo "$$(date -u '+%F %H:%M') UTC, commit $$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" > '$(FULL_RUN)'
run-test-full: run-test sim-variants test-standard-abi test-fbpic test-files

.PHONY: test-files
test-files: wheel $(FILES)/complete ## Index files that packages of PyPI ship or write, and compare with their readers
	@$(RUN) 'files of packages' -- env TURBIDITE_FILES='$(FILES)' $(PYTEST) tests/files $(ARGS)

# Code that FBPIC compiles stays beside it.
.PHONY: test-fbpic
test-fbpic: wheel $(FBPIC)/complete ## Compare the package with openPMD-viewer on a wakefield of FBPIC
	@$(RUN) FBPIC -- env TURBIDITE_FBPIC='$(FBPIC)' TURBIDITE_FBPIC_FIGURE='$(CARGO_TARGET_DIR)/wakefield.png' \
		NUMBA_CACHE_DIR='$(FBPIC)/numba' $(PYTEST) -s tests/fbpic $(ARGS)

.PHONY: sample
sample: ## Cut testdata/vpic from the full dumps in ../shared/data/vpic
	$(PYTHON) tools/cut_sample.py ../shared/data/vpic testdata/vpic
