// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
)

// TestUnsound: the receiver of unsound devices is told of a claim's device that has failed, with the claim's
// pod, and of no other device.
func TestUnsound(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t, "v1.37.1"), newNode(t, machine, 8)
	config, gpus := n.config(c, "")
	told := make(chan []coordination.Unsound)
	config.Unsound = func(list []coordination.Unsound) {
		select {
		case told <- list:
		case <-t.Context().Done():
		}
	}
	defer n.start(config)()
	k := n.register("")
	c.awaitPublished(complete)
	claim := c.allocate("train", "train-0", "pair-11-00-0")
	if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
		t.Fatal(wrong)
	}
	gpus.fallIll("0000:11:00.0", "0000:2f:00.0")
	for {
		list := <-told
		if len(list) == 0 {
			continue
		}
		if u := list[0]; len(list) > 1 || u.Pod.Name != "train-0" || u.UID == "" || u.Name != "claim train" ||
			u.Device != "0000:11:00.0" || u.Health != "failed" || u.Reason == "" {
			t.Errorf("told of %+v", list)
		}
		return
	}
}
