# Faults: simulated jobs, corrupt bytes, thread schedules, fuzzing.

# Seeds of one run do not repeat those of the last.
SEED ?= $(shell date +%s)
SECONDS ?= 600

.PHONY: sim
sim: ## Simulate jobs with faults from seeds for 10 minutes (SECONDS=60 SEED=1)
	SIM_SECONDS='$(SECONDS)' SIM_SEED='$(SEED)' $(CARGO) test $(RELEASE) --package turbidite --test sim no_history -- --nocapture

.PHONY: sim-variants
sim-variants: ## Break the product in many ways, each to be caught (ARGS=batch-dropped)
	@$(RUN) 'broken variants' -- $(PYTHON) tools/sim_variants.py $(ARGS)

.PHONY: corruption
corruption: ## Change every byte of a small dataset, and cut its files at every length
	TURBIDITE_WHOLE=1 $(CARGO) test $(RELEASE) --workspace --test integration corruption:: -- --nocapture

.PHONY: schedules
schedules: ## Run the threads of a job in thousands of orders (Shuttle)
	@cd fuzz/schedules && $(COMPILE) schedules -- $(CARGO) test $(RELEASE) --lib --no-run
	@cd fuzz/schedules && $(RUN) schedules -- $(CARGO) test $(RELEASE) --lib

# Fuzzing. Instrumented code lies apart from the rest; the nightly toolchain is used where there is one, else the stable one must
# allow what it needs. cargo-fuzz is not needed, but finds the targets where it is installed.
FUZZ_TARGETS ?= $(patsubst fuzz/fuzz_targets/%.rs,%,$(sort $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_OUT := $(CARGO_TARGET_DIR)/fuzz
FUZZ_TRIPLE = $(shell rustc -vV | sed -n 's/^host: //p')
FUZZ_CARGO = $(shell if cargo +nightly --version >/dev/null 2>&1; then echo 'cargo +nightly'; else echo 'env RUSTC_BOOTSTRAP=1 cargo'; fi)
FUZZ_ENVIRONMENT := CARGO_TARGET_DIR='$(FUZZ_OUT)' CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_CODEGEN_UNITS=8 \
	RUSTFLAGS='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address'
# Findings go to fuzz/artifacts; new inputs to the cache, and by `make fuzz-corpus` into the checkout.
FUZZ_LIMITS := -malloc_limit_mb=512 -rss_limit_mb=2048 -timeout=10 -max_len=65536 -print_final_stats=1

.PHONY: fuzz
fuzz: fuzz-build ## Fuzz all readers of bytes in turn (SECONDS=600 FUZZ_TARGETS='part rank')
	@mkdir -p fuzz/artifacts
	@for target in $(FUZZ_TARGETS); do \
		echo "== $$target, $(SECONDS) s"; mkdir -p "$(FUZZ_OUT)/corpus/$$target"; \
		"$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/$$target" $(FUZZ_LIMITS) -max_total_time=$(SECONDS) -artifact_prefix="fuzz/artifacts/$$target-" \
			$$(test -f "fuzz/dictionaries/$$target.dict" && echo "-dict=fuzz/dictionaries/$$target.dict") \
			"$(FUZZ_OUT)/corpus/$$target" "$(FUZZ_OUT)/seeds/$$target" "fuzz/corpus/$$target" 2>&1 | grep -vE '^#[0-9]+.(NEW|REDUCE|pulse)|NEW_FUNC'; \
		test "$${PIPESTATUS[0]}" = 0; \
	done

.PHONY: fuzz-build
fuzz-build:
	@echo 'fuzzing with $(FUZZ_CARGO)'
	cd fuzz && $(FUZZ_ENVIRONMENT) $(FUZZ_CARGO) build $(RELEASE) --target '$(FUZZ_TRIPLE)'
	'$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/seeds' '$(FUZZ_OUT)/seeds'

.PHONY: fuzz-corpus
fuzz-corpus: ## Keep the fewest inputs that reach all that was reached
	@for target in $(FUZZ_TARGETS); do \
		"$(FUZZ_OUT)/$(FUZZ_TRIPLE)/release/$$target" -merge=1 -max_len=4096 "fuzz/corpus/$$target" "$(FUZZ_OUT)/corpus/$$target"; \
	done
