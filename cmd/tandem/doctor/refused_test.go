// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"testing"
)

// TestRefusedPodsFlag: the flag has numbers of pods, with requests of their containers if known.
func TestRefusedPodsFlag(t *testing.T) {
	t.Parallel()
	var pods RefusedPods
	for _, value := range []string{
		"1:cpu=8,example.com/gpu=2;example.com/vf=1", "2", "2:example.com/gpu=1", "0",
		"2:cpu=8,example.com/gpu=2;example.com/vf=1", "1:init=1,example.com/gpu=1",
	} {
		if err := pods.Set(value); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"3:cpu=8,example.com/gpu=2;example.com/vf=1", "2:example.com/gpu=1", "1:init=1,example.com/gpu=1", "2",
	}
	if got := pods.Flags(); !slices.Equal(got, want) || pods.Number() != 8 {
		t.Errorf("%d pods as %q, want %q", pods.Number(), got, want)
	}
	for _, wrong := range []string{"", "-1", "x", "1:", "1:gpu", "1:=2", "1:gpu=-1", "1:gpu=1;;vf=1"} {
		if err := new(RefusedPods).Set(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
	var none RefusedPods
	if got := none.Flags(); !slices.Equal(got, []string{"0"}) {
		t.Errorf("no pods as %q", got)
	}
}
