// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
	"github.com/tandem-k8s/tandem/test/podsapi"
	"github.com/tandem-k8s/tandem/topology"
)

// vfs returns the VFs of each PF, in the order of their indices.
func (n *node) vfs() (byPF map[string][]string) {
	n.t.Helper()
	tree, err := topology.Read(n.sys)
	if err != nil {
		n.t.Fatal(err)
	}
	byPF = map[string][]string{}
	for d := range tree.Devices() {
		if d.IsVF() {
			byPF[d.PF.String()] = append(byPF[d.PF.String()], d.Address.String())
		}
	}
	return byPF
}

// holdVFs records VFs as devices that a running pod has from a device plugin, until end is called.
func (n *node) holdVFs(ids ...string) (end func()) {
	n.t.Helper()
	n.write(kubelet.CheckpointPath(n.kubelet), `{"Data":{"PodDeviceEntries":[{"PodUID":"old","ContainerName":`+
		`"main","ResourceName":"tandem.dev/rdma_vf","DeviceIDs":{"0":["`+strings.Join(ids, `","`)+`"]}}],`+
		`"RegisteredDevices":{}}}`)
	stop, err := podsapi.Serve(n.kubelet, func() []corev1.Pod {
		return []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "old-0", UID: "old"}}}
	})
	if err != nil {
		n.t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		stop()
		n.write(kubelet.CheckpointPath(n.kubelet), `{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}}}`)
	})
	n.t.Cleanup(end)
	return end
}

// TestUnusableVFs: each GPU is published with a usable VF, if its switch has one. VFs that are unhealthy or
// held by pods do not take the place of usable VFs, nor count among the VFs of a limited number.
func TestUnusableVFs(t *testing.T) {
	plain := []string{"DRAPartitionableDevices", "DRADeviceTaints"}
	for name, c := range map[string]struct {
		off             []string // feature gates
		unhealthy, held int      // VFs of each PF, from the first one
		limit           int      // maximum of published VFs of a PF
	}{
		"control": {limit: 2}, "control without gates": {off: plain, limit: 2},
		"unhealthy": {unhealthy: 1, limit: 16}, "unhealthy without gates": {off: plain, unhealthy: 1, limit: 16},
		"unhealthy within the limit": {unhealthy: 2, limit: 2},
		"held within the limit":      {off: plain, held: 2, limit: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, n := newCluster(t, "v1.37.1", c.off...), newWatchedNode(t, 4)
			var held []string
			for _, vfs := range n.vfs() {
				held = append(held, vfs[:c.held]...)
				for _, vf := range vfs[:c.unhealthy] {
					n.breakPort(vf)
				}
			}
			if len(held) > 0 {
				n.holdVFs(held...)
			}
			config, _ := n.config(server, "")
			config.VFsPerPF = c.limit
			n.start(config)
			if pairs := server.usablePairs(); pairs != 8 {
				t.Errorf("%d of 8 pairs can be allocated; each switch has %d usable VFs", pairs, 4-c.unhealthy-c.held)
			}
		})
	}
}

// usablePairs waits for a whole publication and returns the number of pairs without a taint.
func (c *cluster) usablePairs() (count int) {
	c.t.Helper()
	await(c.t, "the whole pool is published", func() bool {
		list, err := c.ResourceV1().ResourceSlices().List(c.t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) > 0 &&
			int64(len(list.Items)) == list.Items[0].Spec.Pool.ResourceSliceCount
	})
	devices, _ := c.published()
	for _, d := range devices {
		kind := d.Attributes[pool.AttributeType].StringValue
		isPair := kind != nil && (*kind == string(pool.TypePair) || *kind == string(pool.TypeGPUVF))
		if isPair && len(d.Taints) == 0 {
			count++
		}
	}
	return count
}
