package dra

import (
	"maps"
	"testing"
)

// TestAbsent: a device is free once nobody who lives has it, at the start at once, later after some looks.
func TestAbsent(t *testing.T) {
	recorded := map[string]string{"a": "a pod with UID 1", "b": "a pod with UID 2"}
	a, before := absent{}, map[string]string(nil)
	for step, c := range []struct{ living, want map[string]string }{
		{map[string]string{"a": "pod x/y"}, map[string]string{"a": "pod x/y"}},
		{nil, map[string]string{"a": "pod x/y"}}, // the kubelet may have just started
		{map[string]string{"a": "pod x/y", "b": "pod x/z"}, map[string]string{"a": "pod x/y", "b": "pod x/z"}},
		{map[string]string{"b": "pod x/z"}, map[string]string{"a": "pod x/y", "b": "pod x/z"}},
		{map[string]string{"b": "pod x/z"}, map[string]string{"a": "pod x/y", "b": "pod x/z"}},
		{map[string]string{"b": "pod x/z"}, map[string]string{"b": "pod x/z"}},
		{map[string]string{"b": "pod x/z"}, map[string]string{"b": "pod x/z"}},
	} {
		before = a.filter(recorded, c.living, before)
		if !maps.Equal(before, c.want) {
			t.Fatalf("step %d: %v, want %v", step, before, c.want)
		}
	}
	if got := a.filter(map[string]string{}, nil, before); len(got) > 0 {
		t.Errorf("what is not recorded any more: %v", got)
	}
}
