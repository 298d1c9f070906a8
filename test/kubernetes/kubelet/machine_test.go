// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/pair"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/rig"
)

// fewerVFs leaves each PF fewer VFs, some of which pods have, and makes them as many as before. In every
// other case a daemon is killed meanwhile and started again.
func fewerVFs(c *chaos) func() {
	back := c.lowerVFs()
	c.happened()
	return c.withRestart(back)
}

// lowerVFs leaves each PF at least one VF, and waits until the kubelet knows that the others are gone.
func (c *chaos) lowerVFs() (back func()) {
	left := 1 + c.random.IntN(c.world.VFsPerPF-1)
	restore, err := c.LowerVFs(left)
	c.must(err)
	c.did("VFs for each PF: %d", left)
	c.must(c.WaitAllocatable(deadline(c.t)))
	return func() { c.must(restore()) }
}

// severalVFs is for faults that leave a PF some of its VFs.
func severalVFs(c *chaos) bool { return c.world.VFsPerPF > 1 }

// unload takes the GPUs' driver away and brings it back. Meanwhile no GPU is healthy, and pods that want some
// are refused.
func unload(c *chaos) func() {
	back, err := c.UnloadGPUDriver()
	c.must(err)
	c.did("GPU driver unloaded")
	c.dead = true
	c.must(c.Node.WaitAllocatable(deadline(c.t), c.GPU, 0))
	c.happened()
	return func() { c.must(back()) }
}

// restartsFewer leaves each PF fewer VFs and starts all anew. Then the kubelet counts those that there are,
// and those that containers have by its own record.
func restartsFewer(c *chaos) func() {
	back := c.lowerVFs()
	daemons := []*pair.Daemon{c.Pair.GPU, c.Pair.RDMA}
	c.kill(daemons...)
	c.restartKubelet()
	for _, daemon := range daemons {
		c.start(daemon)
	}
	c.must(c.WaitReady(deadline(c.t)))
	c.dead = false
	gone, err := c.HeldAndGone()
	c.must(err)
	healthy, all, failed := c.Node.Allocatable(rig.VF), c.Node.Capacity(rig.VF), c.FailedVFs()
	if all > healthy+gone+failed {
		c.t.Errorf("the kubelet counts %d VFs: %d are there, at most %d have failed, and containers have %d that "+
			"are gone", all, healthy, failed, gone)
	}
	c.happened()
	return back
}
