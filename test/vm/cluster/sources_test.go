// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"maps"
	"testing"
)

func TestSources(t *testing.T) {
	got := sources(`level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; kubelet asked first for GPUs; told by kubelet; 1 pair"
level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; told by pods-api"
level=INFO msg=preferred reason="a/b/c wants 1 amd.com/gpu; told by kubelet; 1 pair"
level=INFO msg=preferred reason="free devices near each other"
`)
	if want := map[string]int{"kubelet": 2, "pods-api": 1, "": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
