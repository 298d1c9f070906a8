// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestSlicesOfOneNode: the driver reads the slices of its own node alone, because devices of other nodes have
// the same names.
func TestSlicesOfOneNode(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	own := cache.ToListerWatcherWithContext(slicesOf(client, "a"))
	if _, err := own.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	watcher, err := own.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watcher.Stop()
	const want = "spec.driver=tandem.dev,spec.nodeName=a"
	asked := 0
	for _, action := range client.Actions() {
		switch action := action.(type) {
		case clienttesting.ListAction:
			asked++
			if got := action.GetListRestrictions().Fields.String(); got != want {
				t.Errorf("lists %q, want %q", got, want)
			}
		case clienttesting.WatchAction:
			asked++
			if got := action.GetWatchRestrictions().Fields.String(); got != want {
				t.Errorf("watches %q, want %q", got, want)
			}
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
