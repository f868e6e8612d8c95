package test

import (
	"cmp"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// usesOfOptions are the calls that can use an option, beside Subscribe and SubscribeConsumer, which take all.
var usesOfOptions = map[string]string{
	"MaxWait NoWait":                "Next AckNext Fetch",
	"FillBatch":                     "Fetch",
	"KeepAlive StopAfter":           "Messages Consume ConsumeBatch",
	"AwaitConsumer":                 "Messages Consume ConsumeBatch",
	"Logger Prefetch PrefetchBytes": "Messages Consume ConsumeBatch With",
	"Concurrency OrderedBy Use":     "Consume ConsumeBatch With",
	"RetryDelays MaxAttempts":       "Consume ConsumeBatch With",
	"DeadLetter ManualAck":          "Consume ConsumeBatch With",
	"HandlerTimeout DrainTimeout":   "Consume ConsumeBatch With",
	"MaxCrashes ExpiresAt":          "Consume ConsumeBatch With",
	"Limited Named":                 "Consume ConsumeBatch With",
	"OnError OnEvent":               "Consume ConsumeBatch With",
	"DrainBuffered OnStart":         "Consume ConsumeBatch",
	"OnPin OnUnpin":                 "",
	"MaxBytes Heartbeat Group MinPending MinAckPending Priority": "Next AckNext Fetch Messages Consume ConsumeBatch",
}

// TestOptionsCompileWhereTheyWork has every exported function that returns an option, with every one that takes options.
func TestOptionsCompileWhereTheyWork(t *testing.T) {
	packages := compiled(t)
	options, calls := map[string]types.Type{}, map[string]types.Type{}
	for _, path := range []string{module, module + "/partition"} {
		p, err := packages.Import(path)
		require.NoError(t, err)
		for _, name := range p.Scope().Names() {
			o := p.Scope().Lookup(name)
			functions := []types.Object{o}
			for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
				functions = append(functions, m.Obj())
			}
			for _, f := range functions {
				signature, ok := f.Type().(*types.Signature)
				if !ok || !o.Exported() || !f.Exported() {
					continue
				}
				if r := signature.Results(); r.Len() == 1 && isOption(r.At(0).Type()) {
					options[f.Name()] = r.At(0).Type()
				}
				if p := signature.Params(); signature.Variadic() && isOption(p.At(p.Len()-1).Type().(*types.Slice).Elem()) {
					calls[f.Name()] = p.At(p.Len() - 1).Type().(*types.Slice).Elem()
				}
			}
		}
	}
	require.Len(t, calls, 9)
	for names, uses := range usesOfOptions {
		for option := range strings.FieldsSeq(names) {
			require.Contains(t, options, option)
			for call, takes := range calls {
				fits := strings.HasPrefix(call, "Subscribe") || slices.Contains(strings.Fields(uses), call)
				require.Equal(t, fits, types.AssignableTo(options[option], takes), "%s with %s", call, option)
			}
			delete(options, option)
		}
	}
	require.Empty(t, options, "options that the table does not have")
}

// isOption reports whether a type is one of options of package jetpull.
func isOption(t types.Type) bool {
	named, ok := t.(*types.Named)
	return ok && types.IsInterface(t) && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == module && strings.HasSuffix(named.Obj().Name(),
		"Option")
}

// TestExamplesOfOptions compiles the files in testdata/options: right.go has no error, and wrong.go those that its comments name.
func TestExamplesOfOptions(t *testing.T) {
	packages := compiled(t)
	for name, wrong := range map[string]int{"right.go": 0, "wrong.go": 10} {
		text, err := os.ReadFile("testdata/options/" + name)
		require.NoError(t, err)
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, 0)
		require.NoError(t, err)
		errs := map[int]string{} // by their lines
		check := types.Config{Importer: packages, Error: func(err error) {
			wrong, ok := errors.AsType[types.Error](err)
			require.True(t, ok)
			errs[files.Position(wrong.Pos).Line] += wrong.Msg
		}}
		_, err = check.Check("options", files, []*ast.File{file}, nil)
		require.Equal(t, wrong > 0, err != nil)
		require.Len(t, errs, wrong, name)
		lines := strings.Split(string(text), "\n")
		for n, problem := range errs {
			_, want, _ := strings.Cut(lines[n-1], " // ")
			require.Contains(t, problem, cmp.Or(want, "no error"), "%s:%d", name, n)
		}
	}
}

// compiled are the packages of the project and those that they import, as the go command compiles them.
func compiled(t *testing.T) types.Importer {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", module, module+"/partition")
	cmd.Dir, cmd.Stderr = "..", os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}
