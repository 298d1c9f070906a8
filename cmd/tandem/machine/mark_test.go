// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
)

// TestMarkDistances: distances have verdicts, and names of resources that end in the same words have none.
func TestMarkDistances(t *testing.T) {
	t.Parallel()
	const reason = "4 pairs: 1 PIX, 1 C2C, 2 SYS; resource a.b/NODE;"
	marked := MarkDistances(reason)
	var verdicts []cli.Cell
	for _, part := range marked {
		if part.Verdict != "" {
			verdicts = append(verdicts, cli.Cell{part})
		}
	}
	want := []cli.Cell{cli.Good.Of("PIX"), cli.Good.Of("C2C"), cli.Doubtful.Of("SYS")}
	if diff := cmp.Diff(want, verdicts); diff != "" || marked.String() != reason {
		t.Errorf("%s %s", marked, diff)
	}
}
