// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestSlicesOfOneNode: the driver reads the slices of its own node alone, because devices of other nodes have
// the same names.
func TestSlicesOfOneNode(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	p := &publisher{parts: parts{config: Config{Client: client, NodeName: "a"}}}
	if _, err := p.shownVFs(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "spec.driver=tandem.dev,spec.nodeName=a"
	for _, action := range client.Actions() {
		if got := action.(clienttesting.ListAction).GetListRestrictions().Fields.String(); got != want {
			t.Errorf("lists %q, want %q", got, want)
		}
	}
}
