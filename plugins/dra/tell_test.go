// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// Where a pair is assigned another VF than it is published with, the API server has this VF before the
// kubelet has its answer: Multus reads the VF there, and would take that of another claim.
func TestMovedVFOfAPair(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, _ := n.config(c)
	n.start(config)
	k := n.register()
	c.awaitPublished(complete)
	vf, pair := c.allocate("vf", "storage-0", "vf-0c-00-1"), c.allocate("pair", "train-0", "pair-11-00-0")
	c.change(func() { c.refused[http.MethodPut] = true })
	if _, wrong := k.prepare(t.Context(), vf); wrong != "" {
		t.Fatal(wrong)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	_, wrong := k.prepare(ctx, pair)
	cancel()
	now, _ := c.published()
	holders, err := coordination.ReadClaimHolders(dra.PluginDir(n.kubelet), "")
	shown := holders[*now["pair-11-00-0"].Attributes[pool.AttributeMultusID].StringValue]
	if err != nil || wrong == "" || shown != "claim team/vf" {
		t.Errorf("the kubelet has %q, and Multus reads the VF of %s: %v", wrong, shown, err)
	}
	c.change(func() { c.refused[http.MethodGet] = true })
	if _, wrong := k.prepare(t.Context(), pair); !strings.Contains(wrong, "API server has them: later") {
		t.Errorf("without an answer of the API server: %q", wrong)
	}
	c.change(func() { clear(c.refused) })
	if _, wrong := k.prepare(t.Context(), pair); wrong != "" {
		t.Error(wrong)
	}
}

// TestTold: status and explain tell who has what, and what was refused, also after a restart.
func TestTold(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, _ := n.config(c)
	stop := n.start(config)
	k := n.register()
	if got := strings.Join(k.services, " "); !strings.Contains(got, "v1.DRAPlugin") ||
		!strings.Contains(got, "v1.DRAResourceHealth") {
		t.Errorf("services %s", got)
	}
	c.awaitPublished(complete)
	if _, wrong := k.prepare(t.Context(), c.allocate("a", "train-0", "pair-11-00-0")); wrong != "" {
		t.Fatal(wrong)
	}
	if _, wrong := k.prepare(t.Context(), c.allocate("b", "train-1", "gpu-11-00-0")); wrong == "" {
		t.Fatal("a GPU is given twice")
	}
	owned := func() bool {
		gpus, vfs := 0, 0
		for _, r := range n.status(t).GetResources() {
			for _, d := range r.GetDevices() {
				if o := d.GetOwner(); d.GetAllocated() && o.GetNamespace() == "team" && o.GetPod() == "train-0" {
					if r.GetKind() == "gpu" {
						gpus++
					} else {
						vfs++
					}
				}
			}
		}
		return gpus == 1 && vfs == 1
	}
	if !owned() {
		t.Errorf("%v", n.status(t))
	}
	explained := func(pod string) *api.Decision {
		answer, err := coordination.Explain(t.Context(), n.run(), "team", pod, "")
		if err != nil || len(answer.GetDecisions()) != 1 {
			t.Fatalf("%v, %v", answer, err)
		}
		return answer.GetDecisions()[0]
	}
	if one := explained("train-0"); one.GetRefusal() != "" || len(one.GetPairs()) != 1 ||
		one.GetPairs()[0].GetGpu() != "0000:11:00.0" || one.GetPairs()[0].GetDistance() == "" {
		t.Errorf("%v", one)
	}
	if one := explained("train-1"); !strings.Contains(one.GetRefusal(), "team/a") {
		t.Errorf("%v", one)
	}
	if _, err := coordination.Explain(t.Context(), n.run(), "team", "none", ""); err == nil ||
		!strings.Contains(err.Error(), "explain pod team/none: no claim of the pod is prepared") {
		t.Errorf("%v", err)
	}
	stop()
	if devices, _ := c.published(); len(devices) == 0 {
		t.Error("the slices are deleted at the end, when another pod of the driver follows")
	}
	n.start(config)
	await(t, "the next process knows the owner", owned)
}

// text is an attribute of a device that is published.
func text(devices map[string]resourceapi.Device, device string, name resourceapi.QualifiedName) string {
	if value := devices[device].Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// farVF names a VF that is not on the switch of a GPU.
func farVF(devices map[string]resourceapi.Device, gpu string) (token string) {
	for name := range devices {
		if strings.HasPrefix(name, "vf-") &&
			text(devices, name, pool.AttributeSwitch) != text(devices, gpu, pool.AttributeSwitch) {
			token = name
		}
	}
	return token
}

// TestTokens: where a token stands for another VF, the API server has that before the kubelet has its answer,
// and the VF's own again when the claim is taken back.
func TestTokens(t *testing.T) {
	t.Parallel()
	c, n := newCluster(t), newNode(t, machine, 8)
	config, _ := n.config(c)
	n.start(config)
	k := n.register()
	devices := c.awaitPublished(complete)
	token := farVF(devices, "gpu-11-00-0")
	own := text(devices, token, pool.AttributeMultusID)
	reserved := text(devices, "pair-11-00-0", pool.AttributeVF)
	claim := c.allocate("a", "train-0", "gpu-11-00-0", token)
	c.change(func() { c.refused[http.MethodPut] = true })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	if _, wrong := k.prepare(ctx, claim); wrong == "" {
		t.Error("the kubelet has its answer before the API server has the VF")
	}
	cancel()
	c.change(func() { clear(c.refused) })
	if _, wrong := k.prepare(t.Context(), claim); wrong != "" {
		t.Fatal(wrong)
	}
	if now, _ := c.published(); text(now, token, pool.AttributeMultusID) != reserved {
		t.Errorf("Multus reads %s of %s, want %s", text(now, token, pool.AttributeMultusID), token, reserved)
	}
	if wrong := k.unprepare(t.Context(), claim); wrong != "" {
		t.Fatal(wrong)
	}
	c.awaitPublished(func(now map[string]resourceapi.Device, _ int) bool {
		return text(now, token, pool.AttributeMultusID) == own
	})
}
