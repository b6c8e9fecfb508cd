package kvstored_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
)

// limitsPages have every bound of the daemon, and of the router.
var limitsPages = []string{"docs/guarantees.md", "router/docs/reference.md"}

// stated are rows of its tables whose value no key sets: how they begin, and the constants
// that they state. Those of a number of bytes have "bytes " in front.
var stated = map[string][]string{
	"less than 64 KiB of a frame":               {"bytes internal/wire.stallBytes", "internal/daemon.stallTimeout"},
	"less than 1 MiB read while":                {"bytes internal/server.queueBytes", "internal/daemon.stallTimeout"},
	"connections, 16 for administrators":        {"config.AdminConnections"},
	"files: 512, and four":                      {"internal/daemon.ownFiles"},
	"of one user":                               nil, // a share, or half
	"chunks in DRAM, on disk":                   nil, // derived from the memory
	"jobs and fills of a user":                  {"internal/daemon.uidJobs"},
	"batches to replay; changes in them":        {"internal/index.LogBatches", "internal/index.LogChanges"},
	"requests of a user that wait":              {"internal/server.maxWaiting"},
	"jobs, fills, pins, spaces of a connection": {"internal/server.maxLive", "internal/server/hint.MaxPins"},
	"chunks of a request":                       {"key.MaxChunks"},
	"loads of a user":                           {"internal/server.maxLoads", "prefetch.maxLoads"},
	"snapshots of events":                       {"internal/server.maxSnapshots"},
	"wrong Redis passwords":                     {"internal/resp.firstDelay", "internal/resp.mostDelay", "internal/resp.forgiveAfter"},
	"hosts remembered for that":                 {"internal/resp.mostHosts"},
	"their logins that wait":                    {"internal/resp.mostWaiting"},
	"connections of `admin.listen`":             {"internal/daemon.pageConnections"},
	"making of `/metrics`":                      {"internal/daemon.metricsPause"},
	"of `admin.socket`":                         {"internal/admin.Connections"},
	"one HTTP request":                          {"bytes internal/httpd.HeaderBytes", "internal/httpd.requestTimeout", "internal/httpd.ReplyTimeout", "internal/httpd.restTimeout"},
	"body to `admin.socket`":                    {"bytes internal/admin.BodyBytes", "bytes internal/admin.PromptBytes"},
	"prefixes: a page":                          {"internal/admin.mostPage", "internal/admin.mostTree", "internal/explain.MostRuns"},
	"ends of prompts":                           {"internal/explain.hotEntries"},
	"spaces a page":                             {"bytes internal/server.spacesPageBytes", "internal/admin.maxListed"},
	"connections of a bridge":                   {"router/publish.connections", "router/zmtp.maxTopics", "bytes router/zmtp.maxTopicBytes"},
	"a departed client":                         {"internal/socket.peekEvery"},
	"TCP half-closed":                           {"internal/socket.halfFor"},
	"a Redis command after that":                {"internal/resp.closeAfter"},
	"all else at SIGTERM":                       {"internal/daemon.EndTimeout"},
	"first frame":                               {"bytes internal/wire.MaxHelloBytes"},
	"frame":                                     {"bytes internal/wire.MaxBodyBytes"},
	"client's name":                             {"internal/resp.maxShy"},
	"staging window":                            {"bytes internal/server.maxStaging"},
	"warms of a connection":                     {"internal/server.maxWarms"},
	"gets' copies of a connection":              {"bytes internal/server.maxInline"},
	"replies unread by a Redis client":          {"bytes internal/resp.maxQueue"},
	"Redis value's name":                        {"bytes internal/resp.MaxName"},
	"deletions owed":                            {"internal/resp.maxOwed"},
	"prompts by lookup id":                      {"bytes internal/server.maxRecentBytes"},
	"why chunks left":                           {"internal/explain.DefaultEntries"},
	"names of spaces":                           {"bytes internal/server.maxCatalogBytes"},
	"models with a label":                       {"internal/server.maxModels"},
	"what-if sample":                            {"bytes internal/explain.SampleBytes"},
	"hybrid prompts":                            {"internal/index.maxWaits", "internal/index.maxLinks"},
	"keeper's connections":                      {"internal/fdstore.most", "internal/fdstore.MaxFiles"},
	"clients that map":                          {"cpu.MaxClients"},
	"manifest":                                  {"cpu.RecordBytes"},
	"claims":                                    {"bytes internal/server/hint.maxMemory"},
	"prompts that rest":                         {"bytes internal/server.maxPausesBytes"},
	"messages of a bridge":                      {"router/publish.queue"},
	"`kv_hints`":                                {"bytes internal/server/hint.maxEnvelope", "internal/server/hint.MaxActions", "internal/server/hint.MaxDirectives"},
	"shards of the index":                       {"router/index.defaultMaxShards"},
	"texts of a worker":                         {"router/route.maxText"},
	"blocks that a worker tells":                {"router/feed.burst"},
	"a batch of events":                         {"bytes router/feed.maxMessage"},
	"adapters of one daemon":                    {"router/feed.maxSpaces"},
	"batches asked for again":                   {"router/feed.maxReplay", "bytes router/feed.maxMessage", "router/feed.replayWait"},
	"reservations; age of one":                  {"router/route.maxReservations", "router/route.defaultReservation"},
	"body of a call: a prompt":                  {"bytes router/route.promptBody", "bytes router/route.eventBody", "bytes router/route.smallBody"},
	"memory for bodies":                         {"bytes router/route.freeBody", "bytes router/route.bodyBudget"},
	"memory for messages of workers":            {"bytes router/zmtp.freeBytes", "bytes router/route.messageBudget", "router/zmtp.wholeWithin"},
	"hashes in a call":                          {"router/route.maxHashes", "router/route.maxListed"},
	"blocks in a dump":                          {"router/route.defaultDump", "router/route.maxDump"},
	"connections, of `route.listen`":            {"router/route.connections"},
	"arguments of a Redis command":              nil, // a default of its options
	"events of a worker that wait":              nil, // likewise
	"disk held by single chunks":                nil, // a share, disk.heldShare
}

// derived are keys whose default the configuration does not say: it depends on others.
var derived = map[string]string{"limits.memory": "derived", "limits.uid_connections": "half", "retain.total": "half", "retain.uid": "a quarter"}

// TestLimitsAreTrue: each row of the tables of limits states the default of its key, or
// the constants of the code; each key that is a limit, and each constant, has its row.
func TestLimitsAreTrue(t *testing.T) {
	defaults := map[string]reflect.Value{}
	keys(reflect.ValueOf(config.Default()), "", defaults)
	constants := newConstants()
	found, keyed := map[string]bool{}, map[string]bool{}
	text := page(t, limitsPages[0])
	_, router, _ := strings.Cut(page(t, limitsPages[1]), "\n## Bounds\n")
	router, _, _ = strings.Cut(router, "\n## ")
	row := regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \| (.*?) ?\| .*\|$`)
	for _, m := range row.FindAllStringSubmatch(text+router, -1) {
		what, value, key := m[1], m[2], m[3]
		for _, k := range regexp.MustCompile("`([a-z0-9_.]+)`").FindAllStringSubmatch(key, -1) {
			v, ok := defaults[k[1]]
			if !ok || strings.HasPrefix(what, "attack") {
				continue
			}
			keyed[k[1]] = true
			if want := orElse(derived[k[1]], inWords(v)); !strings.Contains(value, want) {
				t.Errorf("%s: the default of %s is %s, not %q", what, k[1], want, value)
			}
		}
		for begins, of := range stated {
			if !strings.HasPrefix(what, begins) || strings.HasPrefix(value, "as of ") {
				continue
			}
			found[begins] = true
			for _, name := range of {
				if want := constants.text(t, name); !strings.Contains(m[0], want) {
					t.Errorf("%s: %s is %s, not %q", what, name, want, value)
				}
			}
		}
		if key == "" && !statedRow(what) {
			t.Errorf("%s: no constant says %q", what, value)
		}
	}
	for begins := range stated {
		if !found[begins] {
			t.Errorf("no row begins with %q", begins)
		}
	}
	for k := range defaults {
		if strings.HasPrefix(k, "limits.") && !keyed[k] {
			t.Errorf("%s has no row", k)
		}
	}
}

func statedRow(what string) bool {
	for begins := range stated {
		if strings.HasPrefix(what, begins) {
			return true
		}
	}
	return false
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// keys are the values of a configuration by their keys.
func keys(v reflect.Value, at string, out map[string]reflect.Value) {
	if v.Kind() != reflect.Struct {
		out[at] = v
		return
	}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			keys(v.Field(i), strings.TrimPrefix(at+"."+name, "."), out)
		}
	}
}

// inWords is a value as a page has it.
func inWords(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return durationText(x)
	case config.Bytes:
		return bytesText(int64(x))
	case float64:
		return orElse(map[float64]string{0.5: "half", 0.25: "quarter"}[x], fmt.Sprint(x))
	case int:
		return countText(int64(x))
	}
	return fmt.Sprint(v)
}

func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d >= 2*time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%g s", d.Seconds())
}

func bytesText(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if by := int64(1) << (30 - 10*i); n >= by && n%by == 0 {
			return fmt.Sprintf("%d %s", n/by, unit)
		}
	}
	return countText(n) + " bytes"
}

func countText(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// constants are those of this module's packages, read from their source.
type constants struct {
	files *token.FileSet
	known map[string]*gotypes.Package
}

func newConstants() *constants {
	c := &constants{files: token.NewFileSet(), known: map[string]*gotypes.Package{"unsafe": gotypes.Unsafe}}
	c.check("time", []*ast.File{c.parse("time.go", "package time\ntype Duration int64\nconst (Nanosecond Duration = 1; Microsecond = 1000 * Nanosecond; Millisecond = 1000 * Microsecond; Second = 1000 * Millisecond; Minute = 60 * Second; Hour = 60 * Minute)")})
	return c
}

func (c *constants) parse(name string, text any) *ast.File {
	f, err := parser.ParseFile(c.files, name, text, parser.SkipObjectResolution)
	if err != nil {
		panic(err)
	}
	return f
}

func (c *constants) check(path string, files []*ast.File) *gotypes.Package {
	checker := gotypes.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}} // of what other modules declare
	p, _ := checker.Check(path, c.files, files, nil)
	c.known[path] = p
	return p
}

// Import is of types.Importer: of other modules it knows no more than the name.
func (c *constants) Import(path string) (*gotypes.Package, error) {
	if p := c.known[path]; p != nil {
		return p, nil
	}
	dir, ours := strings.CutPrefix(path, "github.com/kvstored/kvstored/")
	if !ours {
		c.known[path] = gotypes.NewPackage(path, filepath.Base(path))
		c.known[path].MarkComplete()
		return c.known[path], nil
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_other.go") {
			files = append(files, c.parse(name, nil))
		}
	}
	return c.check(path, files), nil
}

// text is a constant as the page has it.
func (c *constants) text(t *testing.T, name string) string {
	t.Helper()
	name, bytes := strings.CutPrefix(name, "bytes ")
	dir, name, _ := strings.Cut(name, ".")
	p, err := c.Import("github.com/kvstored/kvstored/" + dir)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := p.Scope().Lookup(name).(*gotypes.Const)
	if !ok {
		t.Errorf("%s has no constant %s", dir, name)
		return "?"
	}
	n, exact := constant.Int64Val(constant.ToInt(k.Val()))
	switch {
	case !exact:
		t.Errorf("%s.%s is no number", dir, name)
	case bytes:
		return bytesText(n)
	case strings.HasSuffix(k.Type().String(), "time.Duration"):
		return durationText(time.Duration(n))
	}
	return countText(n)
}
