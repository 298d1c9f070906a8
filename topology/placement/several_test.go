package placement

import (
	"slices"
	"testing"
)

// TestRails asks for a VF of every rail, each a resource of its own, and for all GPUs.
func TestRails(t *testing.T) {
	m := load(t, "oci-mi300x-derived", 2)
	r := Request{GPUs: []Half{{Count: 8, Free: m.gpus}}}
	for i := 0; i < len(m.vfs); i += 2 {
		r.VFs = append(r.VFs, Half{Count: 1, Free: m.vfs[i : i+2]})
	}
	c := mustChoose(t, m.tree, r)
	wellFormed(t, r, c)
	if want := "8 pairs: 8 PIX; VFs on 8 PFs; 0 same-switch pairs left"; !slices.Contains([]string{want, want + "; too large to prove it the best"}, c.Reason) {
		t.Errorf("got %s, want %s", c.Reason, want)
	}
}
