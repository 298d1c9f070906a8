// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"testing"

	"github.com/tandem-k8s/tandem/coordination/device"
)

// nobody answers for no plugin.
type nobody struct{}

func (nobody) Prefer(*Pod, *Container, Question) []string       { return nil }
func (nobody) Allocate(*Pod, *Container, string, []string) bool { return false }

// TestDeck: each order and number of containers, and each request, occurs among the random pods of a run.
func TestDeck(t *testing.T) {
	t.Parallel()
	k, err := New(t.TempDir(), map[string][]device.Device{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	orders, sizes := map[string]bool{}, map[[2]int]bool{}
	for range 3 * len(deck) {
		p := k.Random()
		var roles []Role
		for _, c := range p.Containers {
			roles = append(roles, c.Role)
			sizes[[2]int{c.Requests[GPUs], c.Requests[VFs]}] = true
		}
		orders[fmt.Sprint(roles)] = true
		_ = k.Admit(p, nobody{})
		k.End(p)
	}
	for _, roles := range deck {
		if !orders[fmt.Sprint(roles)] {
			t.Errorf("no pod has %v", roles)
		}
	}
	for _, size := range append(requests, rare...) {
		if !sizes[size] {
			t.Errorf("no container requests %v", size)
		}
	}
}
