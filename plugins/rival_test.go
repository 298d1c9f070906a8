// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// TestRivalAfterAClockStep: another plugin takes over a resource after the node's clock was set back.
func TestRivalAfterAClockStep(t *testing.T) {
	s := newScene(t, "oci-mi300x-derived", 1, allVFs)
	s.write(t, "config.json", `{"resourceList": [
		{"resourceName": "a", "selectors": {"pciAddresses": ["0000:0c:00.1"]}},
		{"resourceName": "b", "selectors": {"pciAddresses": ["0000:2a:00.1"]}}]}`)
	s.flags = append(s.flags, "--metrics-bind-address=127.0.0.1:0")
	s.start(t, "tandem-rdma")
	s.await(t)
	s.await(t)
	metrics := s.addresses(t)
	isRegistered := func(name string) bool {
		return scrape(t, metrics...)[`tandem_kubelet_registered{resource="nvidia.com/`+name+`"}`] == 1
	}
	until(t, "both resources are registered", func() bool { return isRegistered("a") && isRegistered("b") })
	for name, made := range map[string]time.Time{
		"a": time.Now().Add(time.Second), "b": time.Now().Add(-time.Hour),
	} {
		socket := filepath.Join(kubelettest.Plugins(s.dir), "nvidia.com_"+name)
		rival, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer rival.Close()
		if err := os.Chtimes(socket, made, made); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "a later plugin is noticed", func() bool { return !isRegistered("a") })
	for late := time.After(2 * time.Second); isRegistered("b"); {
		select {
		case <-late:
			t.Fatal("a later plugin is not noticed after a clock step")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
