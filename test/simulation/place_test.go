// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/test/model"
	"github.com/tandem-k8s/tandem/test/scale"
	"github.com/tandem-k8s/tandem/test/simulation/seeds"
)

// scriptPods is the number of pods of a sequence.
const scriptPods = 60

// place runs a seed's sequence in a bubble.
func place(t *testing.T, seed uint64, variant Variant) []Placement {
	t.Helper()
	var placed []Placement
	var report *seeds.Report
	seeds.Bubble(t, func(dir string) (err error) {
		placed, report, err = Place(dir, seed, variant, scriptPods, slog.New(slog.DiscardHandler))
		return err
	})
	if report.Violation != "" {
		t.Errorf("%+v: %s", variant, report)
	}
	return placed
}

// TestCircumstances: by the rules of the package comment, pods have the same pairs, or as good ones.
func TestCircumstances(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale.Rounds(40)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			base := Variant{Options: OptionsOf(seed), First: model.GPUs}
			base.Source, base.OneProcess = intent.PodsAPI, false
			want := place(t, seed, base)
			for name, change := range map[string]func(*Variant){
				"kubelet":     func(v *Variant) { v.Source = intent.Kubelet },
				"one process": func(v *Variant) { v.OneProcess = true },
				"other way":   func(v *Variant) { v.Direct = !v.Direct },
				"restarts":    func(v *Variant) { v.Restarts = true },
			} {
				variant := base
				change(&variant)
				if diff := cmp.Diff(want, place(t, seed, variant)); diff != "" {
					t.Errorf("%s (-base +variant):\n%s", name, diff)
				}
			}
			variant := base
			variant.First = model.VFs
			comparePairs(t, want, place(t, seed, variant))
		})
	}
}

// comparePairs compares distances up to the first container with other devices.
func comparePairs(t *testing.T, want, got []Placement) {
	t.Helper()
	for i := range want {
		if want[i].Levels != got[i].Levels {
			t.Errorf("VFs first (-base +variant):\n%s", cmp.Diff(want[i], got[i]))
			return
		}
		if !cmp.Equal(want[i].Devices, got[i].Devices) {
			return
		}
	}
}
