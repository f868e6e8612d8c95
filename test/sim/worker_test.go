package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// verdictMark begins the lines of a worker's output that are for its pool.
const verdictMark = "verdict "

// TestWorker is a worker process of a pool: it runs the seeds that come on its
// input, one at a time, and answers each with a line.
func TestWorker(t *testing.T) {
	if !*asWorker {
		t.Skip("run by the other tests, in processes of their own")
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		seed, err := strconv.ParseUint(input.Text(), 10, 64)
		if err != nil {
			t.Fatalf("the seed %q is no number: %v", input.Text(), err)
		}
		line, err := json.Marshal(runSeed(t, seed))
		if err != nil {
			t.Fatal(err)
		}
		// In one piece, and on a line of its own whatever was printed before.
		if _, err := fmt.Fprintf(os.Stdout, "\n%s%s\n", verdictMark, line); err != nil {
			t.Fatal(err)
		}
	}
}
