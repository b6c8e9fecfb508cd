package documents_test

// how says what becomes of a block of shell.
type how struct {
	run           bool
	before, after string      // what a reader does beside it
	replace       [][2]string // what a reader puts in the place of names

	file, text string // of the test that runs it
	lines      bool   // of go test and go run, which are looked up
	why        string // nothing runs it
}

func here(before, after string, replace ...[2]string) how {
	return how{run: true, before: before, after: after, replace: replace}
}
func by(file, text string) how  { return how{file: file, text: text} }
func nothing(why string) how    { return how{why: why} }
func goLines() how              { return how{lines: true} }
func wheel() how                { return by("e2e/python/install_test.go", "func TestWheel(") }
func vllmServes() how           { return by("e2e/vllm/serve_linux_test.go", "func TestServe(") }
func packages() how             { return by("e2e/packages/packages_linux_test.go", "func TestPackages(") }
func released(test string) how  { return by("deploy/release/release_test.go", "func "+test+"(") }
func simulated(test string) how { return by("lab/cmd/kvstored-lab/simulate_test.go", "func "+test+"(") }

const trace = "lab/simulate/testdata/separating.jsonl"

// table has what runs each block of each page, in the page's order.
var table = map[string][]how{
	"README.md":       {wheel(), vllmServes()},
	"CONTRIBUTING.md": {by(".ci/run", "README: go test ./..."), goLines(), goLines()},
	"clients/python/README.md": {
		wheel(),
		by("e2e/python/python_test.go", "func TestPython("),
	},
	"deploy/README.md": {
		released("TestReproducible"), released("TestKey"), packages(),
		nothing("there is no container engine; TestImage looks into the image"),
	},
	"docs/benchmarks.md": {nothing("vllm bench serve wants a model and a GPU"), goLines()},
	"docs/engines/README.md": {
		by("e2e/commands/examples_test.go", "func TestExamples("),
	},
	"docs/engines/llamacpp.md": {nothing("the package of llama.cpp has no server")},
	"docs/engines/lmcache.md": {
		by("e2e/lmcache/programs_linux_test.go", "func TestServer("),
		nothing("LMCache's connector in vLLM wants a GPU"),
	},
	"docs/engines/sglang.md": {
		nothing("SGLang's server wants a GPU; e2e/sglang runs its engine with the same options"),
		nothing("likewise"),
	},
	"docs/engines/tested.md": {by(".ci/long", "tests.test_vllm_steps tests.test_vllm tests.test_vllm_trouble")},
	"docs/engines/vllm.md":   {vllmServes(), vllmServes()},
	"docs/eviction.md":       {simulated("TestSimulateTiers"), simulated("TestSimulateSessions")},
	"docs/getting-started.md": {
		by("e2e/commands/demo_test.go", "func TestDemo("),
		by("e2e/engines/demo_engine_linux_test.go", "func TestEngineDemo("),
		here("", "listens 9464"),
		here("", ""),
		here("end; begin ./kvstored serve --config try.yaml; listens 9464", "end"),
		here("unset KVSTORED_SOCKET", "listens 9464; ./kvstored stats; end"),
		here("", "listens 7070", [2]string{"go run -C internal/test/s3test/versitygw github.com/versity/versitygw/cmd/versitygw", "$GATEWAY"}), // built before, of the same files
		here("", "listens 9464; end; ./kvstored check --connect try.yaml"),
	},
	"docs/reference/admin-api.md": {
		here("go build -o kvstored ./cmd/kvstored; mkdir -p /run/kvstored /var/lib/kvstored; begin ./kvstored serve; listens 9464", ""),
		here("", "end", [2]string{"seconds=10", "seconds=1"}, [2]string{"go tool pprof", "go tool pprof -top"}),
	},
	"docs/run/bucket.md":     {nothing("the group is made by packages, the keys by people")},
	"docs/run/kubernetes.md": {nothing("there is no cluster; .ci/long chart renders the chart"), nothing("likewise, on its nodes"), nothing("likewise")},
	"docs/run/sizing.md":     {nothing("it wants 256 GiB and eight GPUs")},
	"examples/README.md": {
		here("", "", [2]string{"serve &\n", "serve &\nlistens 9464\n"}),
	},
	"lab/README.md": {
		here("go build -o kvstored ./cmd/kvstored; mkdir -p /run/kvstored /var/lib/kvstored; begin ./kvstored serve; listens 9464", "", [2]string{"FILE", trace}),
		here("export KVSTORED_SOCKET=/run/kvstored/kvstored.sock", "end"),
		simulated("TestSimulateRows"),
	},
	"router/README.md": {
		here("cp $ROOM/fence-0 a.yaml; sed 's,/tmp/a,/tmp/b,; s/9464/9466/' a.yaml >b.yaml; cp $ROOM/fence-1 router.yaml",
			"", [2]string{"sleep 2 ", "listens 9464; listens 9465; listens 9466; sleep 2 "}),
		by("e2e/router/deployed_test.go", "func TestBridgeAsDeployed("),
	},
}
