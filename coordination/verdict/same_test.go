// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"testing"

	testserver "github.com/tandem-k8s/tandem/test/server"
)

func TestSame(t *testing.T) {
	t.Parallel()
	topology := testserver.Topology("a", 1, true)
	a, b := newNode(t, topology).State(nobody), newNode(t, topology).State(nobody)
	if a.Same() == "" || a.Same() != b.Same() {
		t.Errorf("empty nodes: %q, %q", a.Same(), b.Same())
	}
	a.Admit(testserver.Pod("one", 1, 1))
	if a.Same() == b.Same() {
		t.Error("equal though one holds a pair")
	}
	b.Admit(testserver.Pod("other", 1, 1))
	if a.Same() != b.Same() {
		t.Error("differ though both hold the same pair")
	}
	a.Remove("one")
	if a.Same() == b.Same() {
		t.Error("equal though one holds nothing any more")
	}
}
