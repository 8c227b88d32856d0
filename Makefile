# SPDX-License-Identifier: Apache-2.0 OR MIT
# The few commands people type. The work is in scripts/ and in the programs.

PREFIX ?= /usr/local
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system
SCENARIO ?= scenarios/demo.toml

# rustup's directory is not on the PATH of a make that root started by sudo.
export PATH := $(HOME)/.cargo/bin:$(PATH)
target := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help setup build demo demo-vm test bench bench-native bench-vm bench-findings bench-findings-vm install fmt

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: ## install what build, demo and test need (Debian 12, as root)
	@scripts/setup test

build: ## release build of vmigrater, vlab and scx_vcpu
	@scripts/setup build
	cargo build --release --locked -p vmigrater -p vlab -p scx_vcpu

demo: ## with and without vmigrater on this machine, 2, 4 and 8 VMs per CPU (as root)
	@scripts/setup demo
	cargo build --release --locked -p vmigrater -p vlab
	$(target)/release/vlab run $(SCENARIO) --backend freezer --json $(target)/demo.json
	$(target)/release/vlab report $(target)/demo.json --html $(target)/demo.html

demo-vm: ## the same on two real VMs, where /dev/kvm cannot boot them inside an emulated host (as root)
	@scripts/setup vm
	cargo build --release --locked -p vmigrater -p vlab -p scx_vcpu
	$(target)/release/vlab run scenarios/kvm-smoke.toml --backend kvm --guest-kernel 6.1 --rounds 1 --json $(target)/demo-vm.json
	$(target)/release/vlab report $(target)/demo-vm.json --html $(target)/demo-vm.html

test: ## lints, tests, VM matrix (as root, about 70 minutes on 2 CPUs)
	@scripts/test

bench: bench-native bench-vm ## both parts of what takes long: figures, and proofs in VMs (as root, more than an hour)

bench-native: ## cost, latencies, micro-benchmarks, the simulator beside SimPy, report and trace (as root)
	@scripts/setup bench
	cargo build --release --locked -p vmigrater -p vlab
	CARGO_TARGET_DIR=$(target) scripts/bench-cost
	cargo bench -p freezer --bench slices --locked
	CARGO_TARGET_DIR=$(target) scripts/bench-sim
	cargo bench -p sim --locked
	CARGO_TARGET_DIR=$(target) scripts/check-report crates/experiment/testdata/recorded.json
	CARGO_TARGET_DIR=$(target) scripts/check-trace crates/experiment/testdata/recorded.json

bench-vm: ## shares, attacks, the papers' mixes of VMs, what ordinary threads pay, all kernels, under the host schedulers (as root)
	@scripts/setup bench-vm
	cargo build --locked -p vlab -p scx_vcpu
	SHARES_WINDOW=30s cargo test --locked -p vlab --test vm_scx -- --ignored --nocapture --test-threads=1 \
		$(if $(SCX_VMMS),,--skip of_a_built)

bench-findings: build ## what helps and what does not, with enough rounds to tell (as root, about 45 minutes)
	CARGO_TARGET_DIR=$(target) scripts/bench-findings

bench-findings-vm: build ## the same on real VMs, two rounds (ROUNDS=N; as root, about an hour)
	CARGO_TARGET_DIR=$(target) scripts/bench-findings kvm

install: build ## programs and systemd units below PREFIX=/usr/local
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(UNITDIR)
	install -m 755 $(addprefix $(target)/release/,vmigrater vlab scx_vcpu) $(DESTDIR)$(PREFIX)/bin
	for unit in vmigrater scx_vcpu; do \
		sed "s|^\(Exec[A-Za-z]*=[-@:+!]*\)/[^ ]*/$$unit|\1$(PREFIX)/bin/$$unit|" \
			packaging/systemd/$$unit.service >$(DESTDIR)$(UNITDIR)/$$unit.service && \
		chmod 644 $(DESTDIR)$(UNITDIR)/$$unit.service || exit; \
	done

fmt: ## format all Rust and BPF sources
	@scripts/fmt
