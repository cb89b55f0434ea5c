# Benchmarks and studies besides `make bench`.

.PHONY: bench-quick
bench-quick: build-bench venv ## Measure a part in about a minute, and compare with the committed ratios
	'$(VENV)/bin/python' bench/run.py --quick $(ARGS)

.PHONY: bench-balance
bench-balance: ## Compare load imbalance with CARP's method at 512 partitions
	$(CARGO) run $(RELEASE) --package turbidite-studies --example balance_study -- '$(DUMPS)' $(ARGS)

.PHONY: bench-drift
bench-drift: ## Measure 200 epochs that drift, alternate, jump or change their volume
	$(CARGO) run $(RELEASE) --package turbidite-studies --example drift_study -- $(ARGS)

.PHONY: bench-output
bench-output: build libraries ## Compare a parallel program with and without Turbidite (ARGS='--ranks 4')
	'$(VENV)/bin/python' bench/output.py $(ARGS)

.PHONY: scale
scale: ## Run 64 to 131,072 virtual ranks, and plan 131,072 parts (15 GB, an hour)
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- ranks=64,512,4096,32768,131072 per-node=64 tables=9 $(ARGS)
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- ranks=64,512,4096,32768,131072 per-node=64 tables=0 epochs=2 part-bytes=192000
	$(CARGO) run $(RELEASE) --package turbidite-forecast --example scale_study -- key=hash ranks=64,512,4096,32768,131072 per-node=64 tables=0 records=100
	$(CARGO) run $(RELEASE) --package turbidite-studies --example table_study -- ranks=4096,16384
	$(CARGO) run $(RELEASE) --package turbidite-studies --example table_study -- routing
	$(CARGO) run $(RELEASE) --package turbidite --example plan_speed

.PHONY: bench-renegotiation
bench-renegotiation: libraries ## Measure the time to a partition table over MPI (4 to 16 ranks)
	@mkdir -p '$(MPI_OUT)'
	@'$(MPICC)' -O2 -Wall -o '$(MPI_OUT)/renegotiation' bench/renegotiation.c -I '$(TURBIDITE_PREFIX)/include' \
		-L '$(TURBIDITE_PREFIX)/lib' -Wl,-rpath,'$(TURBIDITE_PREFIX)/lib' -lturbidite_mpi -lturbidite -lm
	@for ranks in 4 8 16; do for pivots in 64 512 2048; do \
		rm -rf '$(MPI_OUT)/renegotiation.tbd'; \
		timeout 300 '$(VENV)/bin/mpiexec' -n $$ranks '$(MPI_OUT)/renegotiation' '$(MPI_OUT)/renegotiation.tbd' $$pivots 5; \
	done; done; rm -rf '$(MPI_OUT)/renegotiation.tbd'
