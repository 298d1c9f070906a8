package kubelet_test

// fewerVFs leaves each PF fewer VFs, some of which pods have, and makes them as many as before. In every other case a daemon is killed
// meanwhile and started again.
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

// unload takes the GPUs' driver away and brings it back. Meanwhile no GPU is healthy, and pods that want some are refused.
func unload(c *chaos) func() {
	back, err := c.UnloadGPUDriver()
	c.must(err)
	c.did("GPU driver unloaded")
	c.dead = true
	c.must(c.Node.WaitAllocatable(deadline(c.t), c.GPU, 0))
	c.happened()
	return func() { c.must(back()) }
}
