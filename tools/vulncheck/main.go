// Command vulncheck runs govulncheck in the folders of modules. It exits with 1 if a module calls code with a known vulnerability,
// and with 4 if the database cannot be reached, so that a check that was not made is not taken for one without findings.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The exit statuses.
const (
	clean      = 0
	vulnerable = 1
	failed     = 2
	notChecked = 4
)

// foundStatus is govulncheck's exit status where it has found something.
const foundStatus = 3

const probeTime = 30 * time.Second

func main() {
	program := flag.String("govulncheck", "govulncheck", "the program")
	database := flag.String("db", "https://vuln.go.dev", "URL of the database")
	flag.Parse()
	os.Exit(run(context.Background(), os.Stdout, *program, *database, flag.Args()))
}

func run(ctx context.Context, out io.Writer, program, database string, modules []string) (status int) {
	if err := reachable(ctx, database); err != nil {
		_, _ = fmt.Fprintf(out, "vulncheck: NOT CHECKED: the database %s cannot be reached: %v\n", database, err)
		return notChecked
	}
	for _, module := range modules {
		_, _ = fmt.Fprintf(out, "vulncheck: %s\n", module)
		cmd := exec.CommandContext(ctx, program, "-db", database, "./...")
		cmd.Dir, cmd.Stdout, cmd.Stderr = module, out, out
		err := cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == foundStatus {
			status = max(status, vulnerable)
		} else if err != nil {
			_, _ = fmt.Fprintf(out, "vulncheck: %s: %s: %v\n", module, program, err)
			status = failed
		}
	}
	switch status {
	case clean:
		_, _ = fmt.Fprintf(out, "vulncheck: nothing known to be vulnerable is called in %d modules\n", len(modules))
	case vulnerable:
		_, _ = fmt.Fprintln(out, "vulncheck: VULNERABLE: see above; update the modules that are named")
	case failed:
		_, _ = fmt.Fprintln(out, "vulncheck: FAILED: at least one module was not checked; see above")
	}
	return status
}

// reachable asks the database for its date.
func reachable(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(database, "/")+"/index/db.json", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}
