# `make` alone lists the targets. Most of them require only Python 3.11 or later. The comparisons with Apache Kafka also
# require Java 17 and Maven, and the tests of franz-go require Go.

PYTHON ?= $(firstword $(shell .ci/pythons))
VENV := .venv
UV := 0.13.9
PIP_AUDIT := 2.10.1
RUN := $(VENV)/bin/python
# This mode only adds the checkout to the import path. The finder that setuptools installs by default would delay the
# start of every process by 25 ms.
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat
PACKAGES := odradek pyspark_odradek
CPYTHONS := 3.11 3.12 3.13 3.14
# With VARIANT=compiled, a suite runs on the output of `make compile`. It fails if the output was not built from these
# sources.
VARIANT ?= pure
PYTEST := $(if $(filter compiled,$(VARIANT)),.ci/compiled only) $(RUN) -m pytest -r s
ARGS ?=
SEED ?=
SEEDS ?=

# Bytecode is always written, regardless of the environment. Otherwise every process of a suite would compile all
# modules again.
unexport PYTHONDONTWRITEBYTECODE

help:
	@echo 'make run           start the broker on localhost:9092, data in ./data (more options: ARGS="--port 9093")'
	@echo 'make compile       compile the hot path with mypyc (needs gcc and some minutes); `make run` then uses the compiled code,'
	@echo '                   which needs a third to two thirds of the CPU'
	@echo 'make wheels        build the files of a release in dist/: compiled wheels for Python $(firstword $(CPYTHONS)) to $(lastword $(CPYTHONS)), and the pure one'
	@echo 'make test          run the unit, spec and client tests, except those of the next line; VARIANT=compiled runs them (and'
	@echo '                   other suites) on the output of make compile'
	@echo 'make test-slow     run the tests that wait for kills, restarts, timeouts or throttling, or try very many cases'
	@echo 'make fuzz          send damaged and generated messages to the codec, over 10,000 connections; FUZZ=n sets the executions'
	@echo '                   per API and version (default: 200)'
	@echo 'make properties    run the Hypothesis tests with new examples; EXAMPLES=n tries n times as many as usual (default: 40)'
	@echo 'make release-check check a release, for hours: act as a user on a bare Debian, with the examples of fixtures (root,'
	@echo '                   debootstrap), run all of fuzz, sim, crash and conformance on the compiled variant, and all'
	@echo '                   tests without the abilities that only Linux has'
	@echo 'make check         run ruff, mypy, deno, shellcheck and actionlint (Go); check the import rules, and the links and the width'
	@echo '                   of the docs'
	@echo 'make check-elsewhere   check the types of everything that is installed, for Windows and macOS'
	@echo 'make test-elsewhere    run tests without the abilities that only Linux has; WITHOUT=windows ARGS=tests/unit chooses one run'
	@echo 'make sim           run each simulation with its own number of seeds; SEEDS=n tries n seeds, SEED=n repeats seed n'
	@echo 'make bench         measure this broker; ARGS="broker --kafka" adds Apache Kafka; ARGS="guard --base main" compares with'
	@echo '                   the commit where the branch left main; ARGS=--help lists all measurements'
	@echo 'make damage        flip each byte of every file of stopped data directories, and cut each file at every length; DAMAGE=n: n of each'
	@echo 'make crash         kill applications and brokers with kill -9; ROUNDS=n rounds of each test, by default its own number'
	@echo 'make soak          copy 100,000 records in transactions while brokers and copiers are killed'
	@echo 'make example-dual-write   show that a database and Kafka agree, although processes are killed'
	@echo 'make example-queue run a queue in which each job gives one result, although workers and the broker are killed'
	@echo 'make example-pipeline   process orders with Spark, each exactly once, although drivers and broker are killed (Java 17)'
	@echo 'make example-graduation   move a data directory to Apache Kafka and back (Java 17, Maven)'
	@echo 'make hostile       send hostile requests; measure the memory and the waits of other clients, also of Kafka (Java 17); ARGS=--quick'
	@echo 'make test-spark    test format("odradek") in a Spark session (Java 17, Maven; installs 460 MB)'
	@echo 'make test-spark-faults   kill drivers, executors and brokers, also with a cluster and Spark Connect (Java 17); ROUNDS=8'
	@echo '                   kills drivers at every step (default: 2)'
	@echo 'make soak-spark    send 100,000 records through a query, with 30 kills; RECORDS, KILLS and SEED change this'
	@echo 'make first-hour    act as a new user in a clean clone: README, guides, page and commands, a line per step (Chromium)'
	@echo 'make page-test     test every view of the page, and the site of the documentation, in headless Chromium; draws the pictures'
	@echo '                   of the README'
	@echo 'make docs          build the documentation as a site with search in site/, and print the line that serves it; a broken'
	@echo '                   link is an error'
	@echo 'make image-test    build the container image with buildah and run it (root on Debian, no Docker)'
	@echo 'make audit         look for known vulnerabilities of the locked dependencies; AUDIT_MAY_BE_OFFLINE=1 permits an unreachable database'
	@echo 'make lock          write the hashes of the packages in the image'
	@echo 'make test-frameworks   test Kafka Streams, Connect, Flink, Spring for Apache Kafka, and schema registry clients (Java 17, Maven, Node, Go)'
	@echo 'make test-spark-connector   test Spark'"'"'s own Kafka source and sink with this broker (Java 17, Maven)'
	@echo 'make conformance   run Kafka'"'"'s own tools, clients and message definitions against this broker (Java, Maven; Go if installed);'
	@echo '                   MOVES=n moves of leaders, coordinators and nodes during each copy (default: 15)'
	@echo 'make judge-history judge old releases of clients, which have to break the rules of their bugs (Node, Go; installs the releases)'
	@echo 'make verdicts      judge current clients, and write docs/verdicts.md (Java, Node, Go, Rust)'
	@echo 'make verdicts-suite   run all of `odradek judge --suite` with the driver of each client, for docs/verdicts.md'
	@echo 'make verdicts-presets   judge current clients in every preset, and write docs/verdicts-presets.md'
	@echo 'make judge-suites  judge the tests of franz-go and of the Java clients (Go, Java; installs from registries)'
	@echo 'make old-clients   run old releases of clients, whose applications see their bugs, and the releases with the fixes (Node, Go, Maven)'
	@echo 'make conformance-answers   only send the same requests to both brokers, and report every difference'
	@echo 'make fixtures-test test the examples for JUnit, Go, Node and Rust with their clients, if the toolchain is installed'
	@echo 'make setup         create .venv with everything that the other targets need; they also do this themselves'

run: .make/run
	@$(RUN) -m compileall -q $(PACKAGES)
	@.ci/compiled run $(RUN) -m odradek serve --data-dir data $(ARGS)

compile: .make/dev
	@$(if $(filter-out default undefined,$(origin CC)),CC='$(CC)') .ci/compiled build $(RUN)

wheels: compile
	.ci/wheel $(RUN)
	.ci/wheels $(CPYTHONS)

setup: .make/dev

# Two processes per core, because tests of clients wait a lot. Each process runs complete files, because the tests in a
# file share a broker. tests/conftest.py decides the order of the files. The timeout shows where a test hangs.
PROCESSES = $(shell expr $$(getconf _NPROCESSORS_ONLN) '*' 2)
test: .make/dev
	$(PYTEST) --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder --timeout 180 -m 'not slow' $(ARGS)

# These tests mostly wait, so there can be more processes than cores.
test-slow: .make/dev
	$(PYTEST) --numprocesses 3 --dist loadfile --timeout 300 -m slow $(ARGS)

properties: .make/dev
	EXAMPLES=$(or $(EXAMPLES),40) $(PYTEST) --numprocesses auto $$(grep -rl --include='*.py' 'from hypothesis' tests/unit tests/spec) $(ARGS)

fuzz: .make/dev
	$(PYTEST) --numprocesses auto --timeout 180 tests/fuzz $(ARGS)

# Takes hours. .ci/run runs only samples of some suites with the compiled variant, or without the abilities of Linux.
# This target runs these suites completely.
release-check: compile check-elsewhere
	.ci/wheel $(RUN)
	.ci/bare
	.ci/first_hour
	$(MAKE) --keep-going test-elsewhere
	$(MAKE) VARIANT=compiled FUZZ=10000 HTTP=10000 ARGS='--timeout 0' fuzz
	$(MAKE) --keep-going VARIANT=compiled OPERATIONS=30000 sim crash conformance

# The files that browsers load for the page and for reports. Deno needs no network, because the modules only import one
# another.
SCRIPTS := odradek/broker/http/page/assets/page.js odradek/tools/judge_page/assets/report.js
ASSETS := $(dir $(SCRIPTS)) odradek/spark/jobs/assets
DENO := DENO_DIR=.make/deno DENO_NO_UPDATE_CHECK=1 $(VENV)/bin/deno
check: .make/dev # Its parts run at the same time, so that it is quick enough for every commit.
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target check-types check-files check-rules

check-types: .make/dev
	$(VENV)/bin/mypy

check-files: .make/dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(DENO) fmt --quiet --check $(ASSETS)
	$(DENO) lint --quiet $(ASSETS)
	$(DENO) check --quiet $(SCRIPTS)
	.ci/workflows $(RUN)

check-rules: .make/dev
	$(RUN) -m pytest --numprocesses 2 --dist load $(addprefix tests/unit/test_,import_rules.py patterns_are_bounded.py citations.py prose_width.py words.py)

# Checks the types of everything that is installed, for Windows and macOS.
check-elsewhere: .make/dev
	$(VENV)/bin/mypy --platform win32 --cache-dir .mypy_cache/win32 -p odradek
	$(VENV)/bin/mypy --platform darwin --cache-dir .mypy_cache/darwin -p odradek

# Runs tests without abilities of Linux (see tests/elsewhere). The tests of the system, the disk and connections run
# once without each ability. All tests of `make test` run once without the abilities that macOS lacks, and once without
# the abilities that Windows lacks. WITHOUT=NAME selects one of these runs by its ability or system, and ARGS selects
# its tests. tests/clients/test_elsewhere.py is part of `make test-slow`, and removes the abilities only from its own
# brokers.
ABILITIES := nowait preadv sendfile fdatasync memfd uvloop signals proc shm macos windows
ALONE := tests/unit/system tests/unit/storage tests/unit/broker/network
WITHOUT_IT = PYTHONPATH=$(CURDIR)/tests/elsewhere $(PYTEST) --numprocesses $(PROCESSES) --dist loadfile --timeout 180 -m 'not slow'
ifdef WITHOUT
test-elsewhere: .make/dev
	WITHOUT=$(WITHOUT) $(WITHOUT_IT) $(or $(ARGS),$(ALONE))
else
test-elsewhere: .make/dev
	set -e; for each in $(ABILITIES); do echo "without $$each"; WITHOUT=$$each $(WITHOUT_IT) $(ALONE); done
	for each in macos windows; do echo "without $$each"; WITHOUT=$$each $(WITHOUT_IT) || exit; done
endif
.PHONY: check-elsewhere test-elsewhere check-types check-files check-rules

sim: .make/dev
	$(if $(SEED),SEED=$(SEED),$(if $(SEEDS),SEEDS=$(SEEDS))) $(PYTEST) --numprocesses auto tests/simulation $(ARGS)

damage: .make/dev
	DAMAGE=$(or $(DAMAGE),all) $(PYTEST) --numprocesses auto --dist worksteal tests/damage $(ARGS)

# The processes of these tests wait for each other. The three long files come first, so that no long file runs alone at
# the end.
CRASHES := $(addprefix tests/crash/,test_dual_write.py test_exactly_once_queue.py test_kill_9.py)
crash: .make/dev
	$(if $(ROUNDS),ROUNDS=$(ROUNDS)) $(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		$(CRASHES) $(filter-out $(CRASHES),$(wildcard tests/crash/test_*.py)) $(ARGS)

soak: .make/dev
	RECORDS=$${RECORDS:-100000} $(if $(SEED),SEED=$(SEED)) $(PYTEST) -s tests/crash/test_exactly_once_copy.py $(ARGS)

# Only benchmarks of Spark need Spark.
bench: $(if $(filter spark --spark,$(ARGS)),.make/spark .make/spark-connector/jars,.make/dev)
	$(RUN) -m bench $(ARGS)

hostile: .make/dev
	$(RUN) -m bench hostile $(ARGS)

example-dual-write: .make/run
	@$(RUN) examples/dual_write.py

# This target needs no installation, because .ci/first_hour works in its own clone.
first-hour:
	@.ci/first_hour

page-test: .make/page .make/docs
	$(RUN) -m pytest --timeout 120 tests/page $(ARGS)

docs: .make/docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict
	@echo 'The site is in site/. Its search needs a server: run `$(RUN) -m mkdocs serve` and open http://127.0.0.1:8000/'

example-queue: .make/run
	@$(RUN) examples/exactly_once_queue.py $(ARGS)

example-graduation: .make/run .make/kafka/jars
	@$(RUN) examples/graduation.py --kafka .make/kafka/jars $(ARGS)

example-pipeline: .make/spark
	@$(RUN) examples/pipeline.py $(ARGS)

# These tests run without -n, because Spark waits only ten seconds for a Python worker to start.
test-spark: .make/spark .make/spark-avro/jars
	$(RUN) -m pytest --timeout 600 tests/spark $(ARGS)

test-spark-faults: .make/spark-connect .make/spark-avro/jars
	$(RUN) -m pytest --timeout 1500 tests/spark_faults $(ARGS)

soak-spark: .make/spark
	RECORDS=$${RECORDS:-100000} KILLS=$${KILLS:-30} $(if $(SEED),SEED=$(SEED)) \
		$(RUN) -m pytest -s --timeout 7200 tests/spark_faults/test_soak.py $(ARGS)

test-frameworks: .make/dev
	$(RUN) -m pytest --timeout 300 tests/frameworks $(ARGS)

test-spark-connector: .make/dev .make/spark-connector/jars
	$(RUN) -m pytest --timeout 300 tests/spark_connector $(ARGS)

.PHONY: image-test lock audit

# Needs root on Debian. With KEEP_IMAGE=1, tests the last image again.
image-test: .make/dev
	.ci/image $(ARGS)

# Locks everything that the image installs, with the hash of every file. The versions are those in pyproject.toml.
lock: .make/dev
	$(RUN) -m pip install --quiet --disable-pip-version-check uv==$(UV)
	export UV_CUSTOM_COMPILE_COMMAND='make lock'; lock() { $(VENV)/bin/uv pip compile --quiet --universal \
		--python-version 3.11 --generate-hashes --no-annotate "$$@"; }; \
	lock pyproject.toml --output-file docker/requirements.txt; \
	printf 'setuptools>=77\nwheel\n' | lock - --output-file docker/build-requirements.txt

audit: .make/audit/installed
	@$(RUN) .ci/audit .make/audit/venv/bin/pip-audit

# Most of the time, one of the two processes waits for a JVM. The long files come first. DIFFERENTIAL lists the files
# that compare single responses.
DIFFERENTIAL := $(addprefix tests/conformance/,test_same_answers_as_kafka.py test_same_transactions_as_kafka.py \
	test_share_groups.py)
conformance: .make/dev
	$(if $(MOVES),MOVES=$(MOVES)) $(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		$(DIFFERENTIAL) $(filter-out $(DIFFERENTIAL),$(wildcard tests/conformance/test_*.py)) $(ARGS)

conformance-answers: .make/dev
	$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder $(DIFFERENTIAL) $(ARGS)

# Old releases are installed in separate folders below .make/history.
judge-history: .make/dev
	$(PYTEST) --timeout 600 tests/client_lab/test_convictions.py tests/client_lab/test_suite_scenarios.py $(ARGS)

# Judges a tour of each client, and writes docs/verdicts.md. Requires Java, Node, Go and Rust, and installs the clients
# from their registries.
verdicts: .make/dev
	$(RUN) -m tests.client_lab.verdicts_page > .make/verdicts.md
	mv .make/verdicts.md docs/verdicts.md

# Runs the complete suite with each driver, and writes tests/client_lab/played.toml, which `make verdicts` shows.
# Takes 45 minutes.
verdicts-suite: .make/dev
	$(RUN) -m tests.client_lab.suite

# Judges librdkafka, aiokafka and kafka-python in every preset, and writes docs/verdicts-presets.md.
verdicts-presets: .make/dev
	rm -rf .make/presets
	$(RUN) -m tests.client_lab.presets_page > .make/verdicts-presets.md
	mv .make/verdicts-presets.md docs/verdicts-presets.md

# Judges the tests of franz-go and of Apache Kafka's clients, and our own tests of Kafka's clients and tools. Requires
# Go, Java and the oracle kit.
judge-suites: .make/dev
	$(RUN) -m tests.client_lab.foreign_suites franz-go
	$(RUN) -m tests.client_lab.foreign_suites java
	$(RUN) -m tests.client_lab.foreign_suites kafka

.PHONY: judge-history verdicts verdicts-suite verdicts-presets judge-suites

fixtures-test: .make/dev
	.ci/fixtures $(ARGS)

.PHONY: fixtures-test
old-clients: .make/dev
	$(PYTEST) --timeout 600 tests/client_lab/test_sights.py $(ARGS)
.PHONY: judge-history verdicts old-clients
clean:
	rm -rf $(VENV) .make .compiled build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# These targets run once, and again when the dependencies change.

.make/run: pyproject.toml | $(RUN)
	@echo 'Installing what the broker needs into $(VENV) ...'
	@$(INSTALL) --editable .
	@mkdir -p .make && touch $@

.make/dev: pyproject.toml | $(RUN)
	@echo 'Installing what the broker and its tests need into $(VENV) ...'
	@$(INSTALL) --editable '.[dev]'
	@mkdir -p .make && touch $@ .make/run

# Spark is large, and only its tests need it.
.make/spark: pyproject.toml | .make/dev
	@echo 'Installing Spark into $(VENV) ...'
	@$(INSTALL) --editable '.[dev,spark]'
	@touch $@

.make/spark-connect: pyproject.toml | .make/spark
	@$(INSTALL) --editable '.[dev,spark,connect]'
	@touch $@

# The library of Spark's `from_avro`. Its release 4.3.0 could not be fetched from Maven Central. The previous release
# works with PySpark 4.3.0.
SPARK_AVRO := 4.2.0
.make/spark-avro/jars: pyproject.toml
	@echo 'Fetching spark-avro ...'
	@mkdir -p $@
	@mvn --quiet --batch-mode dependency:copy -Dartifact=org.apache.spark:spark-avro_2.13:$(SPARK_AVRO) \
		-DoutputDirectory='$(CURDIR)/$@'
	@touch $@

# Uses a separate environment, so that the dependencies of pip-audit cannot affect the versions that the broker is
# tested with.
.make/audit/installed: | $(RUN)
	@$(RUN) -m venv .make/audit/venv
	@.make/audit/venv/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==$(PIP_AUDIT)
	@touch $@

.make/page: pyproject.toml | .make/dev
	@$(INSTALL) --editable '.[dev,page]'
	@touch $@

# Mermaid draws the diagrams of the site. Deno downloads it from npm with its dependencies. Only the file that contains
# Mermaid and all its dependencies is kept.
MERMAID := 11.12.0
.make/docs: pyproject.toml .make/mermaid-$(MERMAID) | .make/dev
	@$(INSTALL) --editable '.[dev,docs]'
	@touch $@

.make/mermaid-$(MERMAID): | .make/dev
	@DENO_DIR=.make/npm $(VENV)/bin/deno cache --quiet --no-lock --no-config npm:mermaid@$(MERMAID)
	@rm -f .make/mermaid*
	@cp .make/npm/npm/registry.npmjs.org/mermaid/$(MERMAID)/dist/mermaid.min.js .make/ && rm -r .make/npm
	@touch $@

# Installs Spark 4.2 in a separate environment, with its Kafka connector from Maven Central.
.make/spark-connector/jars: tests/spark_connector/pom.xml | $(RUN)
	@echo 'Fetching the Kafka connector of Spark 4.2 ...'
	@mkdir -p .make/spark-connector
	@$(RUN) -m venv .make/spark-connector/venv
	@.make/spark-connector/venv/bin/python -m pip install --quiet --disable-pip-version-check pyspark==4.2.0
	@mvn --quiet --batch-mode --file tests/spark_connector/pom.xml dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$@'
	@touch $@

.make/kafka/jars: examples/kafka.pom.xml | $(RUN)
	@echo 'Fetching Apache Kafka 4.4.0 ...'
	@mkdir -p .make/kafka
	@mvn --quiet --batch-mode --file examples/kafka.pom.xml dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$@'
	@touch $@

$(RUN):
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or later with venv was found: install one (Debian: apt install python3-venv), or say make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

.PHONY: hostile first-hour page-test docs help run setup compile wheels test test-slow properties fuzz check sim damage soak bench example-dual-write example-queue example-graduation example-pipeline test-spark conformance conformance-answers crash clean
.PHONY: release-check test-frameworks test-spark-connector test-spark-faults soak-spark
