package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of the root package and of the module.
const module = "github.com/jetpull/jetpull"

// node is a package as the import rules see it.
type node struct {
	imports  []string
	standard bool
}

// graph is the module's packages and all that they import, tests left out.
type graph map[string]node

// clientModules are the modules that the client, the root package with what it
// uses of internal, may import. These import more themselves:
// nats.go has net/http for its websockets.
var clientModules = []string{natsClient, natsModules + "/nuid"}

// clientStandard are the parts of the standard library that the client may not
// import: they belong to the systems built on it.
var clientStandard = []string{"net/http", "database/sql"}

// The packages of the client below the root. enginePkg is a state machine without
// clock, I/O and locks; workerPkg knows deliveries, not NATS; transportPkg alone has the
// connection.
const (
	enginePkg    = module + "/internal/pull"
	transportPkg = module + "/internal/transport"
	workerPkg    = module + "/internal/worker"
	wirePkg      = module + "/internal/wire"
	lifecyclePkg = module + "/internal/lifecycle"

	limitPkg = module + "/limit"

	natsModules = "github.com/nats-io"
	natsClient  = natsModules + "/nats.go"
)

// withConnection are the packages of the client that may import nats.go: crash and limit have a bucket, deadletter publishes, and running answers.
var withConnection = []string{module, transportPkg, limitPkg, module + "/internal/crash", module + "/internal/deadletter", module + "/internal/running"}

// impure are the parts of the standard library that the pull engine may not import.
var impure = []string{"sync", "context", "net", "os", "log/slog"}

// systems are the packages built on the client, each with its subpackages.
var systems = []string{module + "/broker", module + "/relay", module + "/feed"}

// brokerCore are the parts of the broker that are the same whatever is in front of and behind them, and outward is what
// they do not know.
var (
	brokerCore = []string{module + "/broker/internal/domain", module + "/broker/internal/work", module + "/broker/internal/jobindex"}
	outward    = []string{natsModules, "gopkg.in/ini.v1", module + "/broker/internal/httpapi", module + "/broker/internal/journal"}
)

// layers say what parts of the relay and the feed do not know.
var layers = []struct {
	part  string
	never []string
	why   string
}{
	{
		module + "/relay/internal/machine",
		[]string{"sync", "context", "os", "log/slog", natsModules, module + "/relay/internal/store", module + "/relay/internal/work"},
		"the relay's machine has no clock, lock or I/O",
	},
	{
		module + "/relay/internal/store",
		[]string{"net/http", module + "/relay/internal/work", module + "/relay/internal/httpapi"},
		"the relay's store knows neither workers nor HTTP",
	},
	{module + "/relay/internal/work", []string{module + "/relay/internal/httpapi"}, "the relay's workers do not know its HTTP interface"},
	{module + "/feed/internal/sqlstore", []string{"net/http", natsClient, module}, "the feed's tables know neither NATS nor HTTP"},
	{module + "/feed/internal/engine", []string{"net/http", natsClient, "gorm.io", module + "/feed/feedmetrics"}, "the feed's engine knows rows alone"},
}

// harness is for tests, benchmarks and examples, as is module test. It has the testing
// package in it.
const harness = module + "/internal/natstest"

func TestImportRules(t *testing.T) {
	g := graph{}
	for _, p := range goList[struct {
		ImportPath string
		Imports    []string
		Standard   bool
	}](t, "-deps") {
		g[p.ImportPath] = node{imports: p.Imports, standard: p.Standard}
	}
	for _, path := range append([]string{module, enginePkg, transportPkg, workerPkg, wirePkg, lifecyclePkg}, append(layerParts(), brokerCore...)...) {
		if _, ok := g[path]; !ok {
			t.Errorf("%s: there is no such package, and rules are about it", path)
		}
	}
	require.Contains(t, g, "strings", "the list has what packages import, not the packages alone")
	for _, v := range violations(g) {
		t.Error(v)
	}
}

func layerParts() (parts []string) {
	for _, l := range layers {
		parts = append(parts, l.part)
	}
	return parts
}

// violations returns one line for each import that a rule forbids.
func violations(g graph) []string {
	var found []string
	for _, from := range g.own() {
		for _, to := range g[from].imports {
			if why := forbidden(from, to); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", from, to, why))
			}
		}
	}
	found = append(found, engineViolations(g)...)
	for _, from := range []string{workerPkg, wirePkg} {
		if path := g.path(from, natsModules); path != nil {
			found = append(found, fmt.Sprintf("%s knows NATS: %s", from, strings.Join(path, " imports ")))
		}
	}
	return append(found, clientViolations(g)...)
}

// engineViolations holds the pull engine to what it may import itself.
func engineViolations(g graph) []string {
	var found []string
	for _, to := range g[enginePkg].imports {
		switch {
		case g[to].standard && withinAny(to, impure):
			found = append(found, fmt.Sprintf("%s imports %s: it has no lock, context or I/O", enginePkg, to))
		case !g[to].standard && to != wirePkg:
			found = append(found, fmt.Sprintf("%s imports %s: it needs the standard library and %s only", enginePkg, to, wirePkg))
		}
	}
	return found
}

// path is a way by imports from a package to one within parent, or nil.
func (g graph) path(from, parent string) []string {
	ways := map[string][]string{from: {from}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		way := ways[queue[0]]
		for _, to := range g[queue[0]].imports {
			if within(to, parent) {
				return append(way, to)
			}
			if ways[to] == nil && !g[to].standard {
				ways[to] = append(slices.Clone(way), to)
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// forbidden says which rule keeps one package of the module from importing
// another, or "" where none does. Since each edge is held to point down, no
// path can lead from one system to another either.
func forbidden(from, to string) string {
	switch {
	case within(from, module+"/internal") && (to == module || withinAny(to, systems)):
		return "internal may import neither the root package nor a system"
	case within(to, module+"/cmd") && !within(from, module+"/cmd"):
		return "nothing imports cmd"
	case within(to, module+"/console") && !within(from, module+"/console") && !within(from, module+"/cmd"):
		return "only cmd imports the console"
	case within(from, brokerCore[0]) && to == "net/http", withinAny(from, brokerCore) && withinAny(to, outward):
		return "the broker's domain, work and index know neither configuration nor NATS, and its domain no HTTP"
	case !shipped(to) && shipped(from):
		return to + " is for tests, benchmarks and examples only"
	}
	for _, l := range layers {
		if from == l.part && slices.ContainsFunc(l.never, func(other string) bool { return to == other || other != module && within(to, other) }) {
			return l.why
		}
	}
	for _, system := range systems {
		if within(from, system) && withinAny(to, systems) && !within(to, system) {
			return "broker, relay and feed do not know each other; what they share goes into internal"
		}
	}
	return ""
}

// clientViolations walks from the root package through what it uses of this
// module and checks every import on the way.
func clientViolations(g graph) []string {
	var found []string
	seen := map[string]bool{module: true}
	for queue := []string{module}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for _, to := range g[from].imports {
			switch {
			case g[to].standard:
				if withinAny(to, clientStandard) {
					found = append(found, fmt.Sprintf("%s imports %s, which the client may not need", from, to))
				}
			case within(to, module):
				if !within(to, module+"/internal") && to != limitPkg {
					found = append(found, fmt.Sprintf("%s imports %s: of this module the client uses internal only, and limit", from, to))
				} else if !seen[to] {
					seen[to] = true
					queue = append(queue, to)
				}
			case within(to, natsClient) && !slices.Contains(withConnection, from):
				found = append(found, fmt.Sprintf("%s imports %s: of the client only the root package and %s may", from, to, strings.Join(withConnection[1:], ", ")))
			case !withinAny(to, clientModules):
				found = append(found, fmt.Sprintf("%s imports %s: the client has no dependency but %s",
					from, to, strings.Join(clientModules, ", ")))
			}
		}
	}
	return found
}

// own returns the module's packages in order.
func (g graph) own() []string {
	var paths []string
	for path := range g {
		if within(path, module) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// shipped reports whether users import or install a package.
func shipped(path string) bool {
	return !withinAny(path, []string{harness, module + "/internal/pgtest", module + "/test", module + "/examples", module + "/bench"})
}

// within reports whether path is parent or lies under it.
func within(path, parent string) bool {
	rest, ok := strings.CutPrefix(path, parent)
	return ok && (rest == "" || rest[0] == '/')
}

func withinAny(path string, parents []string) bool {
	return slices.ContainsFunc(parents, func(parent string) bool { return within(path, parent) })
}

// TestImportRulesFire breaks each rule on a made-up module, and keeps each in
// the ways that come nearest to breaking it.
func TestImportRulesFire(t *testing.T) {
	const (
		natsgo = natsClient
		server = natsModules + "/nats-server/v2/server"
		helper = module + "/internal/helper"
	)
	type importCase struct {
		name  string
		edges [][2]string
		want  string // a part of the one violation, or "" for none
	}
	tests := []importCase{
		{"client on nats.go", [][2]string{
			{module, natsgo},
			{module, natsgo + "/jetstream"},
			{module, "github.com/nats-io/nuid"},
			{module, "context"},
			{natsgo, "net/http"},
			{natsgo, "github.com/nats-io/nkeys"},
		}, ""},
		{"client on nats-server", [][2]string{{module, server}}, "imports " + server},
		{"client on a namesake of nats.go", [][2]string{{module, natsgo + "x"}}, "imports " + natsgo + "x"},
		{"client on HTTP", [][2]string{{module, "net/http"}}, "imports net/http"},
		{"client on a part of HTTP", [][2]string{{module, "net/http/httptrace"}}, "imports net/http/httptrace"},
		{"client on SQL", [][2]string{{module, "database/sql"}}, "imports database/sql"},
		{"client on HTTP, two steps away", [][2]string{
			{module, module + "/internal/a"},
			{module + "/internal/a", module + "/internal/b"},
			{module + "/internal/b", "net/http"},
		}, module + "/internal/b imports net/http"},
		{"transport on nats.go", [][2]string{{module, transportPkg}, {transportPkg, natsgo}, {transportPkg, enginePkg}}, ""},
		{"another part of the client on nats.go", [][2]string{{module, lifecyclePkg}, {lifecyclePkg, natsgo}}, "only the root package and"},
		{"the same, on a part of it", [][2]string{{module, helper}, {helper, natsgo + "/jetstream"}}, "only the root package and"},
		{"engine on what is pure", [][2]string{{enginePkg, wirePkg}, {enginePkg, "time"}, {enginePkg, "slices"}, {"slices", "sync"}}, ""},
		{"engine on another package of the client", [][2]string{{enginePkg, lifecyclePkg}}, "standard library and"},
		{"engine on a module", [][2]string{{enginePkg, natsgo}}, "standard library and"},
		{"engine on a part of wire", [][2]string{{enginePkg, wirePkg + "/x"}}, "standard library and"},
		{"worker on what knows no NATS", [][2]string{{workerPkg, lifecyclePkg}, {workerPkg, "context"}, {"context", "sync"}}, ""},
		{"worker on nats.go", [][2]string{{workerPkg, natsgo}}, workerPkg + " knows NATS"},
		{"worker on nuid", [][2]string{{workerPkg, natsModules + "/nuid"}}, workerPkg + " knows NATS"},
		{"worker on nats.go, two steps away", [][2]string{{workerPkg, helper}, {helper, natsgo}}, helper + " imports " + natsgo},
		{"wire on nats.go", [][2]string{{wirePkg, natsgo}}, wirePkg + " knows NATS"},
		{"wire on nats-server, two steps away", [][2]string{{wirePkg, helper}, {helper, server}}, wirePkg + " knows NATS"},
		{"internal for a system, on HTTP", [][2]string{
			{module, module + "/internal/wire"},
			{module + "/broker", module + "/internal/service/webhook"},
			{module + "/internal/service/webhook", "net/http"},
		}, ""},
		{"client on its own subpackage", [][2]string{{module, module + "/otelpull"}}, "uses internal only"},
		{"client on a system", [][2]string{{module, module + "/broker"}}, "uses internal only"},
		{"subpackage on client", [][2]string{{module + "/otelpull", module}, {module + "/otelpull", "go.opentelemetry.io/otel"}}, ""},
		{"broker on relay", [][2]string{{module + "/broker", module + "/relay"}}, "do not know each other"},
		{"a part of relay on a part of feed", [][2]string{{module + "/relay/a", module + "/feed/b"}}, "do not know each other"},
		{"broker on its part", [][2]string{{module + "/broker", brokerCore[0]}, {brokerCore[0], "time"}}, ""},
		{"broker's domain on NATS", [][2]string{{brokerCore[0], natsgo + "/jetstream"}}, "domain, work and index"},
		{"broker's domain on HTTP", [][2]string{{brokerCore[0], "net/http"}}, "domain no HTTP"},
		{"broker's callbacks on HTTP", [][2]string{{brokerCore[1], "net/http"}}, ""},
		{"broker's work on its store", [][2]string{{brokerCore[1], module + "/broker/internal/journal"}}, "domain, work and index"},
		{"broker on a namesake of feed", [][2]string{{module + "/broker", module + "/feedback"}}, ""},
		{"relay's machine on what is pure", [][2]string{{layers[0].part, "time"}, {layers[0].part, "net/http"}, {"net/http", "sync"}}, ""},
		{"relay's machine on locks", [][2]string{{layers[0].part, "sync"}}, "no clock, lock or I/O"},
		{"relay's store on its workers", [][2]string{{layers[1].part, layers[2].part}}, "neither workers nor HTTP"},
		{"relay's workers on its HTTP interface", [][2]string{{layers[2].part, module + "/relay/internal/httpapi"}}, "do not know its HTTP interface"},
		{"feed's tables on NATS", [][2]string{{layers[3].part, natsgo + "/jetstream"}}, "neither NATS nor HTTP"},
		{"feed's tables on the client", [][2]string{{layers[3].part, module}}, "neither NATS nor HTTP"},
		{"feed's engine on GORM", [][2]string{{layers[4].part, "gorm.io/gorm"}}, "knows rows alone"},
		{"feed's tables on a helper", [][2]string{{layers[3].part, module + "/internal/mask"}, {layers[3].part, natsModules + "/nuid"}}, ""},
		{"internal on the client", [][2]string{{module + "/internal/service/webhook", module}}, "internal may import neither"},
		{"internal on a system", [][2]string{{module + "/internal/service/webhook", module + "/feed"}}, "internal may import neither"},
		{"broker on the console", [][2]string{{module + "/broker", module + "/console"}}, "only cmd imports the console"},
		{"the console on a part of it, and cmd on it", [][2]string{
			{module + "/console", module + "/console/internal/view"},
			{module + "/cmd/jetpull", module + "/console"},
		}, ""},
		{"broker on cmd", [][2]string{{module + "/broker", module + "/cmd/jetpull"}}, "nothing imports cmd"},
		{"cmd on everything", [][2]string{
			{module + "/cmd/jetpull", module},
			{module + "/cmd/jetpull", module + "/broker"},
			{module + "/cmd/jetpull", module + "/relay"},
			{module + "/cmd/jetpull", module + "/internal/wire"},
			{module + "/cmd/jetpull", server},
		}, ""},
		{"cmd on the rest of bench", [][2]string{{module + "/cmd/jetpull", module + "/bench/relay"}}, "tests, benchmarks and examples only"},
		{"cmd on the test harness", [][2]string{{module + "/cmd/jetpull", harness}}, "tests, benchmarks and examples only"},
		{"a system on module test", [][2]string{{module + "/broker", module + "/test/servertest"}}, "tests, benchmarks and examples only"},
		{"examples on the test harness", [][2]string{{module + "/examples/demo", harness}, {module + "/bench", harness + "/model"}}, ""},
	}
	for _, std := range append([]string{"sync/atomic", "net/url", "os/exec"}, impure...) {
		tests = append(tests, importCase{"engine on " + std, [][2]string{{enginePkg, std}}, "imports " + std + ":"})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(graphOf(tt.edges))
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], tt.want)
		})
	}
}

func graphOf(edges [][2]string) graph {
	g := graph{}
	for _, edge := range edges {
		for _, path := range edge {
			n := g[path]
			n.standard = !strings.Contains(strings.Split(path, "/")[0], ".")
			g[path] = n
		}
		n := g[edge[0]]
		n.imports = append(n.imports, edge[1])
		g[edge[0]] = n
	}
	return g
}
