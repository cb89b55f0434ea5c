# Sanitizers and Miri. What they instrument is compiled by the nightly toolchain, quickly rather than well, and lies apart.
SANITIZE_OUT := $(CARGO_TARGET_DIR)/sanitize
NIGHTLY_LIBRARIES = $(shell rustc +nightly --print sysroot 2>/dev/null)/lib/rustlib
SANITIZE_CARGO = cargo +nightly
SANITIZE_PROFILE := CARGO_PROFILE_RELEASE_OPT_LEVEL=1
# Each target says so where the toolchain lacks its part.
with_nightly = @if test -e '$(NIGHTLY_LIBRARIES)/$(1)'; then $(MAKE) --no-print-directory run-$@; \
	else echo '$@: nothing was tested: the nightly toolchain has no $(1)'; fi

.PHONY: sanitizers
sanitizers: sanitize-address sanitize-threads miri ## Run the three below (needs Rust's nightly toolchain)

.PHONY: sanitize-address run-sanitize-address
sanitize-address: venv ## Run C programs, with all of ours, under AddressSanitizer
	$(call with_nightly,$(FUZZ_TRIPLE)/lib/librustc-nightly_rt.asan.a)
run-sanitize-address:
	CARGO_TARGET_DIR='$(SANITIZE_OUT)/address' $(SANITIZE_PROFILE) RUSTFLAGS=-Zsanitizer=address \
		$(SANITIZE_CARGO) rustc $(RELEASE) --package turbidite-capi --crate-type staticlib --target '$(FUZZ_TRIPLE)'
	TURBIDITE_ADDRESS='$(SANITIZE_OUT)/address/$(FUZZ_TRIPLE)/release/libturbidite_capi.a $(NIGHTLY_LIBRARIES)/$(FUZZ_TRIPLE)/lib/librustc-nightly_rt.asan.a' \
		'$(VENV)/bin/python' -m pytest tests/sanitizers $(ARGS)

# Where threads meet: ranks and their background, the pools of queries, verification and compaction, the storages. Not kills at
# every step and flips of every byte: they take long for what threads do in them.
THREADED ?= runtime:: query:: compact:: store:: storage:: --skip tests::crashes --skip flipped

.PHONY: sanitize-threads run-sanitize-threads
sanitize-threads: ## Run the core's tests of threads under ThreadSanitizer (THREADED='runtime::')
	$(call with_nightly,src/rust)
run-sanitize-threads:
	CARGO_TARGET_DIR='$(SANITIZE_OUT)/threads' $(SANITIZE_PROFILE) CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true RUSTFLAGS=-Zsanitizer=thread \
		$(SANITIZE_CARGO) test -Zbuild-std $(RELEASE) --package turbidite --lib --target '$(FUZZ_TRIPLE)' -- $(THREADED)

# Not isolated from the machine, since a lock on a dataset reads who holds it; on storage in memory, which needs no O_DIRECT.
INTERPRETED := CARGO_TARGET_DIR='$(SANITIZE_OUT)/miri' MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-strict-provenance' $(SANITIZE_CARGO) miri test --locked

.PHONY: miri run-miri
miri: ## Interpret the C interface and the adapter of C transports with Miri
	$(call with_nightly,manifest-miri-preview-$(FUZZ_TRIPLE))
run-miri:
	$(INTERPRETED) --package turbidite-capi
	$(INTERPRETED) --package turbidite --lib -- runtime::rank::c_transport
