// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/plugins/dra"
)

// newerVersion returns a file of claims that a later version of the driver has written.
func newerVersion(t *testing.T, content []byte) []byte {
	t.Helper()
	var file map[string]json.RawMessage
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	file["version"] = json.RawMessage("1000")
	newer, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return newer
}

// TestUnreadableClaimsKeepDevices: after a restart with a file of claims that cannot be read, no device of a
// claim whose pod runs is given to another claim. The VF of the first claim is not the one that its pair
// stands for, because a pod of the device plugins had that one: the scheduler is free to allocate it.
func TestUnreadableClaimsKeepDevices(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, []byte) []byte{
		"control":            func(_ *testing.T, content []byte) []byte { return content },
		"cut off":            func(_ *testing.T, content []byte) []byte { return content[:len(content)/2] },
		"of a later version": newerVersion,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, n, vf := givenAnotherVF(t, spoil)
			config, _ := n.config(server, "")
			n.start(config)
			device := "vf-" + strings.NewReplacer(":", "-", ".", "-").Replace(strings.TrimPrefix(vf, "0000:"))
			second := newClaim("second", "vf", device)
			server.reserve("second-0", second)
			if _, wrong := n.register("").prepare(t.Context(), second); wrong == "" {
				t.Errorf("two running pods have VF %s, with claims first and second", vf)
			}
		})
	}
}

// TestLaterClaimsStay: a file of claims that a later version has written stays as it is, as in a rolling
// update, in which processes of both versions run.
func TestLaterClaimsStay(t *testing.T) {
	t.Parallel()
	server, n, _ := givenAnotherVF(t, newerVersion)
	file := filepath.Join(dra.PluginDir(n.kubelet), "claims.json")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config, _ := n.config(server, "")
	n.start(config)
	n.register("")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("the driver replaced the file by %s, %v", after, err)
	}
}

// givenAnotherVF returns a node without a driver, on which the pod of claim "first" runs with a pair whose VF
// is not the usual one, and that VF. The file of claims has the content that spoil returns.
func givenAnotherVF(t *testing.T, spoil func(*testing.T, []byte) []byte) (c *cluster, n *node, vf string) {
	t.Helper()
	c, n = newCluster(t, "v1.37.1"), newNode(t, machine, 4)
	const usual = "0000:0c:00.1"
	release := n.holdVFs(usual)
	config, _ := n.config(c, "")
	end := n.start(config)
	c.awaitPublished(func(devices map[string]resourceapi.Device, _ int) bool {
		device, ok := devices["pair-11-00-0"]
		return ok && len(device.Taints) == 0
	})
	first := newClaim("first", "pair", "pair-11-00-0")
	c.reserve("first-0", first)
	if _, wrong := n.register("").prepare(t.Context(), first); wrong != "" {
		t.Fatal(wrong)
	}
	end()
	vf = regexp.MustCompile(`0000:0c:00\.\d`).FindString(n.spec(first))
	if vf == "" || vf == usual {
		t.Fatalf("the claim has VF %q", vf)
	}
	release()
	file := filepath.Join(dra.PluginDir(n.kubelet), "claims.json")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	n.write(file, string(spoil(t, content)))
	return c, n, vf
}
