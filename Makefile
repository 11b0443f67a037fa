# Everything that is done with the sources. A machine with Go and make can run, test and build; what checks more says what
# it needs. "make help" lists the targets.

.DEFAULT_GOAL := build
.PHONY: help run demo test check build bench bench-compare crash soak siege fuzz interop generate conformance cover clean \
	dist image image-root packages check-packages check-reproducible check-paths check-explorer console console-test console-shots console-soak night night-report steady slow check-cross-arm64 $(GATE:%=check-%)

# What each change must pass, beside kills and real clients (.ci/run has them all), in this order; cross runs beside the others.
GATE = format tidy vet fix staticcheck cross test conformance race 32bit gateway docs

# No C compiler is needed: only the race detector wants one, and asks for it itself.
export CGO_ENABLED = 0

GO        ?= go
VERSION   ?= $(shell git describe --tags --dirty 2>/dev/null)
# Of the commit, not of the build: the same sources make the same bytes.
STAMP     := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
COMMIT    := $(shell git describe --always --abbrev=12 --dirty --exclude '*' 2>/dev/null)
LDFLAGS   := -s -w $(if $(VERSION),-X weir/cli.Version=$(VERSION:v%=%)) $(if $(STAMP),-X weir/internal/build.stamp=$(STAMP)) $(if $(COMMIT),-X weir/internal/build.commit=$(COMMIT))
# No path of the machine goes into the binary. Without the flag the build shares what the tests have compiled.
BUILDFLAGS ?= -trimpath
GOBUILD    = $(GO) build $(BUILDFLAGS) -ldflags '$(LDFLAGS)'
HOSTARCH  ?= $(patsubst arm,armv7,$(shell $(GO) env GOHOSTARCH))
# Bytes that the program may have, on arm64 and armv7: with all that there is, and built for gateways (the tag gateway).
MAX_SIZE_FULL    = 52000000
MAX_SIZE_GATEWAY = 45000000
FUZZTIME  ?= 20s
FUZZJOBS  ?= 2
DURATION  ?= $(if $(filter siege,$(MAKECMDGOALS)),5m,1h)
SLACK     ?= 1
TESTFLAGS ?=
KILLS     ?= 200
SEED      ?= 0
PART      := ./tools/part
# What a test run has shown, see docs/conformance.md.
SHOWN      = $(CURDIR)/bin/conformance.log

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build, and run the demonstration until Ctrl-C: devices, readings, a rule that fires
	@./weir demo

test: ## run the tests; needs Go and nothing else
	$(GO) test $(TESTFLAGS) ./...

build: ## build the static binary ./weir
	$(GOBUILD) -o weir .

check: ## everything that must hold before a change goes in; it goes on after a failure; needs a C compiler, curl, jq and mosquitto_pub
	@mkdir -p bin; code=0; \
	nice -n 5 $(PART) cross $(MAKE) --no-print-directory check-cross >bin/cross.log 2>&1 & cross=$$!; \
	for p in $(filter-out cross,$(GATE)); do $(PART) $$p $(MAKE) --no-print-directory check-$$p || code=1; done; \
	wait $$cross || code=1; cat bin/cross.log; exit $$code

check-format: ## gofmt has nothing to say
	@bad=$$(find . -name '*.go' -not -path '*/node_modules/*' -exec gofmt -l {} +); \
	if [ -n "$$bad" ]; then echo "not as gofmt writes it:"; echo "$$bad"; exit 1; fi

check-tidy: ## go.mod and go.sum hold what is needed, and no more
	@$(GO) mod tidy -diff
	@cd tools && $(GO) mod tidy -diff

check-vet: ## go vet
	@$(GO) vet ./...

check-fix: ## go fix would change nothing
	@bad=$$($(GO) fix -diff ./...) || { echo "$$bad"; exit 1; }; \
	if [ -n "$$bad" ]; then echo "$$bad"; echo "go fix ./... does it"; exit 1; fi

check-staticcheck: ## staticcheck
	@$(GO) tool -modfile=tools/go.mod staticcheck ./...

# What waits for processes begins first, so that the processors have work until the end.
FIRST = ./internal/test/e2e ./ingest ./cli

check-test: ## make test, remembering which statements were shown; the kills are a part of their own (make crash)
	@mkdir -p $(dir $(SHOWN)) && rm -f $(SHOWN)
	@WEIR_CONFORMANCE_LOG=$(SHOWN) $(GO) test -exec $(CURDIR)/tools/scratch -count=1 -vet=off -p 3 $(FIRST) $$($(GO) list ./... | grep -v '/internal/test/crash$$')

check-conformance: ## docs/conformance.md says what the tests showed; after check-test
	@$(GO) run ./internal/test/conformance/check -log $(SHOWN)

# What is translated from C (SQLite and its C library) has locks of its own and takes nine tenths of the time where every access is
# watched: it is left out.
RACE = CGO_ENABLED=1 $(GO) test -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false -count=1 -vet=off
# What runs the program as a process of its own shows the detector nothing: the program is built without it. The tests of cli nearly all do.
PROCESSES = internal/test/(crash|e2e|siege|soak)
# A directory in memory for what tests write, see .ci/run and tools/scratch.
IN_MEMORY = $(if $(MEMORY),GOTMPDIR=$${TMPDIR:-/tmp} TMPDIR=$(MEMORY))
# Where tests run a second time for something else than what they draw, a fifth of the draws is made (internal/test/draws); rapid makes 100.
FEW = DRAWS=few RAPID_CHECKS=20

check-race: ## the packages that start goroutines under the race detector with few draws, but for tests that start processes; needs a C compiler
	@$(IN_MEMORY) PROCESSES=none $(FEW) $(RACE) -timeout 20m $$(./tools/concurrent | grep -vE '/($(PROCESSES)|cli)$$')

# The packages that lay out bytes or count in ints what may not fit into 32 bits.
BYTES = ./spool/... ./store/... ./series/... ./rules/... ./model/... ./internal/pack ./internal/wire ./internal/memory

# For armv7, for which check-cross compiles the program as well; the night run compiles all of it for 386, and the whole program for arm64.
check-32bit: ## everything compiles for armv7 and is vetted, and the packages that lay out bytes pass their tests on 386, with few draws
	@GOOS=linux GOARCH=arm GOARM=7 $(GO) vet ./...
	@$(IN_MEMORY) GOARCH=386 PROCESSES=none $(FEW) $(GO) test -count=1 -vet=off $(BYTES)

check-cross: BUILDFLAGS = -trimpath
check-cross: ## the program for gateways builds for armv7 and arm64, the whole one for armv7, and they are not larger than MAX_SIZE_GATEWAY and MAX_SIZE_FULL
	@mkdir -p bin
	$(call build-within,gateway,arm GOARM=7,armv7,$(MAX_SIZE_GATEWAY))
	$(call build-within,gateway,arm64,arm64,$(MAX_SIZE_GATEWAY))
	$(call build-within,,arm GOARM=7,armv7,$(MAX_SIZE_FULL))

check-cross-arm64: BUILDFLAGS = -trimpath
check-cross-arm64: ## the whole program for arm64; a part of the night run
	@mkdir -p bin
	$(call build-within,,arm64,arm64,$(MAX_SIZE_FULL))

# build-within TAG,GOARCH,NAME,BYTES builds for a machine and fails when the program is larger.
build-within = GOOS=linux GOARCH=$2 $(GOBUILD) $(if $1,-tags $1) -o bin/weir-$(if $1,$1-)linux-$3 . && \
	n=$$(stat -c %s bin/weir-$(if $1,$1-)linux-$3) && { [ $$n -le $4 ] || { echo "weir$(if $1,-$1) for $3 has $$n bytes, more than $4"; exit 1; }; }

check-gateway: ## the program for gateways says what it is built without, and refuses it
	@$(GO) vet -tags gateway . ./connectors ./internal/build
	@$(GO) test -tags gateway -run '^TestAProgramForGateways' -count=1 -vet=off . ./connectors

check-docs: build ## every command of README, getting-started and the examples works and prints what stands there
	@DOCUMENTS=must $(GO) test -run '^TestDocuments(Readme|GettingStarted|Examples|Name|Link|ProgramsRead)' -count=1 -vet=off .

# What takes long, needs root and the network, or looks for what is rare: each issue must have passed it before it is resolved.
NIGHT = documents race 386 arm64 kills fuzz soak siege explorer packages paths reproducible steady hours

night: ## what is too long for each change, up to two hours: PART=siege runs one part; needs root and the network
	@./tools/night '$(or $(PART),$(NIGHT))'

night-report: ## what the last night runs have shown, a line for each part
	@./tools/night --report '$(NIGHT)'

night-documents: build
	@DOCUMENTS=must $(GO) test -run '^TestDocuments|^TestPathLaptop$$' -count=1 -vet=off .
night-race:
	@$(RACE) -shuffle=on -timeout 30m $$($(GO) list ./... | grep -vE '/$(PROCESSES)$$')
night-arm64:
	@$(MAKE) --no-print-directory check-cross-arm64
night-386:
	@GOARCH=386 WEIR_TEST_MEMORY=200MiB $(GO) test -shuffle=on -count=1 -vet=off ./...
night-kills:
	@$(MAKE) --no-print-directory crash
night-fuzz:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=12s
night-soak:
	@$(MAKE) --no-print-directory soak DURATION=75s
# Where a machine does other things as well delays prove little: eight times their bounds are allowed, and the figures printed.
night-siege:
	@$(MAKE) --no-print-directory siege DURATION=50s SLACK=8
night-explorer night-packages night-paths:
	@$(MAKE) --no-print-directory check-$(@:night-%=%)
night-reproducible:
	@$(MAKE) --no-print-directory check-reproducible ARCHES=amd64
night-steady:
	@$(MAKE) --no-print-directory steady
night-hours:
	@./tools/hours

steady: ## the tests five times on a busy machine, in random order; lists what failed and how often
	@./tools/steady

slow: ## the thirty slowest tests and packages
	@./tools/slow

check-paths: ## README, getting-started and the paths of docs/paths with the archive, on a VM and on a gateway; needs root and the network
	@./tools/paths

dist: ## build what is released into dist/, for each machine: archives, packages, SHA256SUMS; needs GNU tar
	@rm -rf dist
	@VERSION='$(VERSION)' ./packaging/dist

packages: ## the packages for this machine only, into dist/
	@VERSION='$(VERSION)' ARCHES='$(HOSTARCH)' ./packaging/dist

image-root: packages ## lay what the Dockerfile copies into dist/image/, for any OCI builder; needs ca-certificates
	@VERSION='$(VERSION)' ARCHES='$(HOSTARCH)' ./packaging/root

image: packages ## build the container image for this machine into dist/ from the Dockerfile; needs root, buildah, jq and ca-certificates
	@VERSION='$(VERSION)' ARCHES='$(HOSTARCH)' ./packaging/image

check-packages: ## install, run, upgrade and remove the packages, run the image; installs debootstrap, buildah and others; needs root
	@./packaging/test

check-reproducible: ## build everything that is released twice, elsewhere and otherwise, and compare
	@VERSION='$(VERSION)' ./packaging/reproducible

bench: ## measure all of docs/performance.md, about 50 minutes on a quiet machine; BENCH='-quick', '-only queries,disk', '-write', '-help'
	@./bench/run $(BENCH)

bench-compare: ## Go's benchmarks against those of a commit, in turns: BASE=HEAD~1 PACKAGES='./series ./rules' MATCH=Eval
	@./bench/compare '$(or $(BASE),HEAD)' $(PACKAGES)

crash: ## kill the program KILLS (200) times and cut its power as often, and look at what is left; SEED repeats a plan
	@$(GO) test ./internal/test/crash -count=1 -vet=off -timeout 20m -v -kills $(KILLS) -seed $(SEED)

soak: ## good and bad clients for DURATION (1h); fails when anything is lost or grows; SOAK_OUT=FILE takes the samples as JSON
	SOAK=$(DURATION) $(GO) test ./internal/test/soak -run '^TestSoak$$' -count=1 -vet=off -v -timeout 0

siege: ## every flood at once for DURATION (5m) on a disk of 5 MB/s with 192 MiB; delays may take SLACK (1) times their bounds; needs root
	SIEGE=$(DURATION) SIEGE_SLACK=$(SLACK) $(GO) test ./internal/test/siege -run '^TestSiege$$' -count=1 -vet=off -v -timeout 0

fuzz: ## let every fuzz target look for FUZZTIME (20s)
	@./tools/fuzz $(FUZZTIME) $(FUZZJOBS)

# They wait for one another most of the time; what takes longest comes first. interop/run, which fetches what they share, runs before, and the
# browser beside one other only.
PEERS = edge connectors lwm2m sparkplug open-topics tahu notifications

interop: build ## real clients against the binary: mosquitto, also as a bridge and as a broker that is read, mqtt.js, curl, graphql-ws, graphql-http, a typed client, chromium; connectors against Kafka, mosquitto, SNS and SQS; Sparkplug nodes of sparkplug-client and Eclipse Tahu; LwM2M against Eclipse Leshan; mails against aiosmtpd
	@WEIR=$(CURDIR)/weir ./interop/run
	@WEIR=$(CURDIR)/weir ./tools/two console sources
	@WEIR=$(CURDIR)/weir ./tools/two $(PEERS)

console: ## web/console/dist from its sources: install, types, unit tests, build, sizes; needs node, npm and the network
	@./web/console/build

console-test: build ## the console in a real browser, against real devices: interop/console
	@WEIR=$(CURDIR)/weir ./interop/console

console-shots: build ## pictures of every screen of the console, 1280 and 390 px, light and dark, in bin/shots; those that the pages show go to docs/pictures
	@rm -rf bin/shots; WEIR=$(CURDIR)/weir SHOTS=$(CURDIR)/bin/shots CONSOLE_WHOLE=yes ./interop/console
	@for f in $$(grep -oh 'pictures/[a-zA-Z0-9-]*\.png' README.md docs/*.md | sort -u); do cp "bin/shots/$${f#pictures/}" "docs/$$f"; done

console-soak: build ## the inspector of the console under 2,000 messages/s for an hour (DURATION in seconds, RATE)
	@WEIR=$(CURDIR)/weir DURATION=$(if $(filter 1h,$(DURATION)),3600,$(DURATION)) ./interop/console-soak

check-explorer: ## web/explorer/built and web/console/dist are what their sources and npm packages make; needs node, npm and the network
	@./web/explorer/build --check
	@./web/console/build --check

generate: ## write what is made from the sources: store/sqlite/schema.sql, docs/configuration.md, cli.md, mqtt-conformance.md, limits.md, rules.md, api.md, site-files.md, the explorer, docs.zip
	$(GO) test -run '^TestTheWholeSchema' -count=1 ./store/sqlite -update
	$(GO) test -run '^TestTheReference' -count=1 ./config -update
	$(GO) test -run '^TestTheCLIReference' -count=1 ./cli -update
	$(GO) test -run '^TestTheConformancePage' -count=1 ./broker -update
	$(GO) test -run '^TestEveryLimitIsShown' -count=1 ./app -update
	$(GO) test -run '^TestTheRuleReference' -count=1 ./rules -update
	$(GO) test -run '^TestTheRuleReference' -count=1 ./rules/canvas -update
	$(GO) test -run '^TestTheAPIReference(Names|SaysWhat)' -count=1 ./gql -update
	$(GO) test -run '^TestTheAPIReference' -count=1 ./auth -update
	$(GO) test -run '^TestTheSiteFileReference' -count=1 ./site -update
	./web/explorer/build --changed
	$(GO) test -run '^TestTheArchive' -count=1 ./docs -update

conformance: ## write docs/conformance.md from a whole test run
	@$(MAKE) --no-print-directory check-test
	@$(GO) run ./internal/test/conformance/check -log $(SHOWN) -write
	@$(GO) test -run '^TestTheArchive' -count=1 ./docs -update

clean: ## remove what was built
	rm -rf weir bin dist
