// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

var shrinking = flag.Bool("shrink", false, "shrink the script of a seed that breaks a promise")

// play plays a script in a bubble.
func play(t *testing.T, script Script) (report *seeds.Report, err error) {
	t.Helper()
	seeds.Bubble(t, func(dir string) error {
		report, err = Play(dir, script, seeds.Log())
		return nil
	})
	if report != nil {
		report.Repeat = "go test ./test/simulation -run '^TestScripts$'"
	}
	return report, err
}

// shrink shrinks a script that breaks its promise.
func shrink(t *testing.T, script Script) Script {
	t.Helper()
	return Shrink(script, func(shorter Script) bool {
		report, err := play(t, shorter)
		return err == nil && report.Breaks() == script.Promise
	})
}

// TestScripts: no script breaks a promise, whether a plugin asks its own server directly or over the socket,
// except the scripts of known faults, which break theirs.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("find scripts: %d, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			script := readScript(t, file)
			otherWay := script
			otherWay.Node.Direct = !script.Node.Direct
			report, err := play(t, otherWay)
			if script.Known == "" && (err != nil || report.Violation != "") {
				t.Errorf("breaks a promise with direct=%t: %v, %s", otherWay.Node.Direct, err, report)
			}
			report, err = play(t, script)
			switch {
			case err != nil:
				t.Fatal(err)
			case script.Known == "" && report.Violation != "":
				t.Errorf("breaks a promise; a known fault has a line \"known: WHY\" after the promise: %s", report)
			case script.Known != "" && report.Violation == "":
				t.Error("no longer breaks its promise: remove the line that begins with known")
			case script.Known != "" && report.Breaks() != script.Promise:
				t.Errorf("breaks %q, want %q: %s", report.Breaks(), script.Promise, report)
			case script.Known != "":
				t.Skipf("known fault: %s", script.Known)
			}
		})
	}
}

// readScript reads a script, whose text must be the one that the package writes.
func readScript(t *testing.T, file string) Script {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	script, err := ParseScript(string(content))
	if err != nil {
		t.Fatal(err)
	}
	if text := script.String(); text != string(content) {
		t.Errorf("%s has lines in another order, or other spaces; want\n%s", file, text)
	}
	return script
}

// TestSeedIsAScript: the script of a seed's events has the same story as the seed.
func TestSeedIsAScript(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Samples(4) {
		first := simulate(t, seed, 100)
		script, err := ParseScript(first.Script)
		if err != nil {
			t.Fatal(err)
		}
		again, err := play(t, script)
		if err != nil {
			t.Fatal(err)
		}
		if again.Sum != first.Sum {
			t.Errorf("seed %d:\n%s\n\nits script:\n%s", seed, strings.Join(first.Events, "\n"),
				strings.Join(again.Events, "\n"))
		}
	}
}

// TestShrink: what a script needs in order to break is all that is left of it.
func TestShrink(t *testing.T) {
	t.Parallel()
	script, err := ParseScript(`
storm
pod a after=1.2s alignment=required containers=init:init:2gpu,c0:app:2gpu+3vf dice=700
kill tandem-gpu leaves=outdated
pod b after=3s containers=c0:app:1gpu dice=9
end a
calm
`)
	if err != nil {
		t.Fatal(err)
	}
	got := Shrink(script, func(s Script) bool {
		text := s.String()
		return strings.Contains(text, "+2vf") && strings.Contains(text, "end a") || strings.Contains(text, "+3vf")
	})
	const want = "pod a after=1s containers=c0:app:1gpu+3vf"
	if text := got.String(); !strings.HasSuffix(text, "\n"+want+"\n") || len(got.Events) != 1 {
		t.Errorf("got %s, want %s", text, want)
	}
}
