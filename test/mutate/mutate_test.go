// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestOutcomes: the functions in testdata say what becomes of their mutations.
func TestOutcomes(t *testing.T) {
	t.Chdir("../..")
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "mutate.json")
	o := options{
		number: 100, jobs: 2, seed: 1, hang: 2 * time.Second, run: regexp.MustCompile("small "), file: file,
	}
	r, err := o.sample(t.Context(), &out, []string{"./test/mutate/testdata/small"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.Mutations {
		got = append(got, m.Function+": "+m.Kind+" "+m.Text+": "+m.Outcome)
		if (m.Outcome == dead) != (m.By != "") || m.File != "test/mutate/testdata/small/small.go" {
			t.Errorf("the result is %+v", m)
		}
	}
	want := []string{
		`var: constant "high" in "high": 255: dead`,
		`var: constant 255 in "high": 255: dead`,
		`Dead: statement text = "small": dead`,
		`Dead: constant "small" in text = "small": dead`,
		`Dead: condition n > 10 && n != 12: dead`,
		`Dead: condition n > 10: dead`,
		`Dead: condition n != 12: dead`,
		`Dead: boundary n > 10: dead`,
		`Dead: constant 10 in n > 10: dead`,
		`Dead: constant 12 in n != 12: dead`,
		`Dead: statement text = "large": dead`,
		`Dead: constant "large" in text = "large": dead`,
		`Hangs: condition n > 0: dead`,
		`Hangs: boundary n > 0: dead`,
		`Hangs: constant 0 in n > 0: dead`,
		`Hangs: statement n--: dead`,
		`Hangs: statement sum += 2: dead`,
		`Hangs: constant 2 in sum += 2: dead`,
		`Survives: condition n < 3: survived`,
		`Survives: statement n++: survived`,
		`Survives: boundary n < 3: survived`,
		`Survives: constant 3 in n < 3: survived`,
		`Survives: condition n == 5: survived`,
		`Survives: condition n == 6: survived`,
		`Survives: constant 5 in n == 5: survived`,
		`Survives: constant 6 in n == 6: survived`,
		`NotReached: statement delete(Levels, list[1]): not reached`,
		`NotReached: constant 1 in list[1]: not reached`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes:\n%s", diff)
	}
	if !strings.Contains(out.String(), "TestFails is left out, it fails without a mutation") {
		t.Errorf("wrote:\n%s", &out)
	}
	if sum := r.total(); sum.Dead != 18 || sum.Survived != 8 || sum.NotReached != 2 || sum.Sites != len(want) {
		t.Errorf("the sum is %+v", sum)
	}
	if written, err := read(file); err != nil || written.total() != r.total() {
		t.Errorf("read %v, %v", written, err)
	}
}
