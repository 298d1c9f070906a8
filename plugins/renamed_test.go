// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// TestRenamedResource: a container holds a device, and the plugin starts with a configuration that offers
// the device under another resource name. The kubelet counts devices by resource name.
func TestRenamedResource(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	for _, c := range []struct {
		daemon, before, after string
		rename                func()
	}{
		{"tandem-rdma", vfs, "nvidia.com/renamed", func() {
			s.write(t, "config.json", `{"resourceList": [{"resourceName": "renamed", `+allVFs+`}]}`)
		}},
		{"tandem-gpu", gpus, "amd.com/spx_nps1", func() {
			s.flags = append(s.flags, "--resource_naming_strategy=mixed")
		}},
	} {
		stop := s.runOne(t, c.daemon)
		id, free := s.ids[c.before][0], s.ids[c.before][1]
		s.pods(pending("holder", map[string]string{c.before: "1"}))
		s.allocate(t, c.before, []string{id}, 1)
		s.record(t, held("holder", c.before, id))
		s.pods(running("holder", map[string]string{c.before: "1"}))
		stop()
		c.rename()
		stop = s.runOne(t, c.daemon)
		if s.health[c.after][free] != v1beta1.Healthy {
			t.Fatalf("%s, which nobody holds, is not offered as %s: %v", free, c.after, s.ids)
		}
		if s.health[c.after][id] == v1beta1.Healthy {
			t.Errorf("%s, which a container holds as %s, is healthy as %s", id, c.before, c.after)
		}
		s.pods(append(*s.living.Load(), pending("next", map[string]string{c.after: "1"}))...)
		if _, err := s.plugins[c.after].Allocate(t.Context(), id); err == nil {
			t.Errorf("%s, which a container holds as %s, is given to a second container", id, c.before)
		}
		stop()
	}
}

// TestRenamedOnADrainedNode: after a rename no source tells that the pods have ended, and no pod comes that
// makes the kubelet write its checkpoint anew. The steps of docs/troubleshoot.md free the devices.
func TestRenamedOnADrainedNode(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.flags = append(s.flags, "--intent=podresources")
	const renamed = "nvidia.com/renamed"
	stop := s.runBoth(t)
	id := s.ids[vfs][0]
	s.allocate(t, vfs, []string{id}, 1)
	s.record(t, held("drained", vfs, id))
	stop()
	s.write(t, "config.json", `{"resourceList": [{"resourceName": "renamed", `+allVFs+`}]}`)
	stop = s.runBoth(t)
	if s.health[renamed][id] == v1beta1.Healthy {
		t.Errorf("%s is healthy although nobody has told of the pod's end", id)
	}
	s.writeCheckpoint(t, "")
	s.record(t) // the kubelet has started
	stop()
	s.begin(t)
	if s.health[renamed][id] != v1beta1.Healthy {
		t.Errorf("%s of a drained node is %s", id, s.health[renamed][id])
	}
	s.allocate(t, renamed, []string{id}, 1)
}
