# Two commands do everything on a fresh Debian 12 machine, as root or with sudo:
#   make demo   installs what is missing, builds, and shows unmodified programs at work
#   make test   installs what is missing and passes the tests
.PHONY: help demo test accept bench build deps check fuzz install package rpm image clean

SHELL := /bin/bash
PREFIX ?= /usr/local
# Where zsh looks for completions.
ZSH ?= $(PREFIX)/share/zsh/site-functions
# Where the OpenSSL provider goes; packages have it where their distribution's OpenSSL looks for providers.
MODULES ?= $(PREFIX)/lib/sealane
SEALANE_KERNELS ?= $(abspath ../shared/kernel)
export SEALANE_KERNELS

help:
	@sed -n '2,4s/^# \{0,1\}//p' Makefile
	@echo "  make accept everything else that is tested: strongSwan, systemd, other kernels, long runs (an hour); SUITE=NAME one of it"
	@echo "  make bench  runs the benches, rivals side by side (about 30 minutes); results in bench/runs/"
	@echo "  make fuzz   runs each fuzz target for FUZZ_SECONDS (default 60)"
	@echo "  make check  formatting, lints and documentation, warnings denied"
	@echo "  make install PREFIX=/usr/local"
	@echo "  make package builds Debian packages in target/package"
	@echo "  make rpm    builds an rpm package in target/rpm"
	@echo "  make image  builds an OCI image, target/image/sealane.tar"

deps:
	@scripts/install-deps.sh

build: deps
	cargo build --release --locked -p sealane-cli -p sealane-shim -p sealane-provider -p sealane-bench -p sealane-conformance

demo: build
	@python3 scripts/demo.py
	@python3 scripts/demo_tcp_ao.py || [ $$? -eq 77 ]
	@python3 scripts/demo_ipsec.py || [ $$? -eq 77 ]
	@python3 scripts/demo_keys.py

test: deps
	@scripts/test.sh

accept: build
	@scripts/accept.sh $(SUITE)

# With the profile of `make test`, so that both use the same C libraries.
check:
	@scripts/install-deps.sh lints
	cargo fmt --all --check
	scripts/copyright.py --check
	cargo clippy --profile checked --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --profile checked --workspace --no-deps --locked --document-private-items

bench: build
	@scripts/bench.sh

fuzz: deps
	@scripts/fuzz.sh

# Installs what was built, and builds only when nothing was: root often has another PATH, and its cargo would build all again.
install:
	@test -x target/release/sealane -a -e target/release/libsealane_shim.so -a -e target/release/libsealane_provider.so || $(MAKE) build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/sealane $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 target/release/sealane $(DESTDIR)$(PREFIX)/bin/
	install -m 755 target/release/libsealane_shim.so $(DESTDIR)$(PREFIX)/lib/sealane/
	install -m 755 etc/removable.sh $(DESTDIR)$(PREFIX)/lib/sealane/removable
	install -D -m 755 target/release/libsealane_provider.so $(DESTDIR)$(MODULES)/sealane.so
	target/release/sealane man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/doc/sealane/docs
	install -m 644 etc/sealane.toml etc/keeper.toml README.md CHANGELOG.md LIMITATIONS.md $(DESTDIR)$(PREFIX)/share/doc/sealane/
	install -m 644 docs/*.md docs/*.svg $(DESTDIR)$(PREFIX)/share/doc/sealane/docs/
	sed 's|/usr/local/lib/sealane/|$(MODULES)/|' etc/openssl-sealane.cnf > $(DESTDIR)$(PREFIX)/share/doc/sealane/openssl-sealane.cnf
	chmod 644 $(DESTDIR)$(PREFIX)/share/doc/sealane/openssl-sealane.cnf
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' etc/sealane.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/sealane.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/sealane.service
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' etc/sealane-keeper.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/sealane-keeper.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/sealane-keeper.service
	install -D -m 644 etc/sealane-keeper.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/sealane-keeper.conf
	install -D -m 644 etc/NetworkManager.conf $(DESTDIR)$(PREFIX)/lib/NetworkManager/conf.d/sealane.conf
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(ZSH) $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	target/release/sealane completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sealane
	target/release/sealane completions zsh > $(DESTDIR)$(ZSH)/_sealane
	target/release/sealane completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sealane.fish

# Debian packages; debian/ says what is in them beside what `make install` installs.
package: build
	@scripts/package.sh $(VERSION)

# An rpm package of the same files; rpm/ says what its scripts do.
rpm: build
	@scripts/rpm.sh $(VERSION)

# An OCI image archive.
image: build
	@scripts/image.sh $(VERSION)

clean:
	cargo clean
