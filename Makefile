# The two commands are `make demo` and `make test`; both install what is missing (Debian, as root or with sudo) and
# build first. `make help` lists the others.

BUILD := build-release
CONVNORM := $(BUILD)/cli/convnorm
# The system's own interpreter: it is the one that Debian's numpy and matplotlib belong to.
PYTHON := /usr/bin/python3
WAV := /usr/share/sounds/alsa/Front_Center.wav
JOBS := $(shell nproc)
# Installs packages; `make DEPS=: test` leaves the system as it is.
DEPS := scripts/install-deps.sh

.DEFAULT_GOAL := help
# Stages run in the order in which they are listed; each uses all processors by itself.
.NOTPARALLEL:
.PHONY: help deps build cli demo test test-release test-asan test-ubsan test-tsan test-python test-cuda test-neon bench-cpu tidy clean

help: ## this list
	@sed -n 's/^\([a-z -]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 36

deps:
	@$(DEPS)

build: deps ## the library, the command line and the tests, optimised
	$(call build_preset,release)

cli: deps ## the library and the command line alone
	$(call build_preset,release,--target convnorm-cli)

demo: cli ## features of a recording in one fused call; WAV=/path/to/any.wav
	@$(PYTHON) examples/demo/demo.py --convnorm $(CONVNORM) --output demo-out "$(WAV)"

# The sanitisers (address and undefined behaviour in one build) come first, so that the summary of the full suite is last.
test: test-asan test-python test-release ## all tests: the reduced set under the sanitisers, the Python package, the full suite

test-release: build ## all tests
	ctest --preset release --parallel $(JOBS)

test-asan test-ubsan test-tsan: test-%: deps ## the reduced set under one sanitiser
	$(call build_preset,$*)
	ctest --preset $* --parallel $(JOBS) --label-regex reduced --no-tests=error

test-python: deps ## the Python package, which pip installs beside PyTorch into .venv-test
	@$(DEPS) python3-venv python3-dev
	PYTHON=$(PYTHON) scripts/test-python.sh .venv-test

test-cuda: build ## what needs a GPU, on the machine's own
	scripts/test-cuda.sh $(BUILD)

test-neon: ## the self-test on emulated arm64
	@$(DEPS) g++-aarch64-linux-gnu qemu-user
	scripts/test-neon.sh build-neon

bench-cpu: cli ## the CPU kernels beside PyTorch's, which pip puts into .venv-bench
	@$(DEPS) python3-venv
	@test -x .venv-bench/bin/pip || $(PYTHON) -m venv .venv-bench
	@.venv-bench/bin/python -c 'import torch' 2>/dev/null || .venv-bench/bin/pip install --quiet torch numpy
	.venv-bench/bin/python bench/cpu_vs_torch.py $(CONVNORM)

tidy: build ## clang-tidy over what was built
	$(DEPS) clang-tidy
	run-clang-tidy -quiet -j $(JOBS) -p $(BUILD) '/(src|cli)/.*\.cpp$$'

clean: ## forget what was built
	rm -rf build-* demo-out

# $(1): a preset of CMakePresets.json; $(2): further arguments of the build
define build_preset
cmake --preset $(1) $(if $(shell command -v ninja),-G Ninja)
cmake --build --preset $(1) --parallel $(JOBS) $(2)
endef
