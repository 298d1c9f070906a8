// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// Config configures a simulation.
type Config struct {
	Node            *world.Node
	Policy          hints.Policy
	ExcludeTopology bool
	Mix             world.Mix
	Loads           []float64 // shares of GPUs allocated, percent
	GPUFirst        float64   // probability that the kubelet asks for GPUs first
	Seed            uint64
	Seeds           int
	Warmup          int // arrivals before counting starts
	Arrivals        int // measured arrivals
	Ways            []Way

	// Progress, if not nil, receives the number of finished trials. Calls come from several goroutines, but
	// never concurrently.
	Progress func(done, all int)
}

// Check returns an error for an invalid configuration; it does not check the node.
func (c *Config) Check() error {
	switch {
	case len(c.Ways) == 0 || len(c.Mix) == 0 || len(c.Loads) == 0:
		return errors.New("simulate: want at least one load, one request and one way of choosing")
	case !(c.GPUFirst >= 0 && c.GPUFirst <= 1): // NaN is neither
		return fmt.Errorf("simulate: probability %g is not between 0 and 1", c.GPUFirst)
	}
	for _, load := range c.Loads {
		if !(load > 0 && load < 100) {
			return fmt.Errorf("simulate: load %g is not between 0 and 100 percent", load)
		}
	}
	return world.CheckNumbers(c.Seeds, c.Arrivals, c.Warmup)
}
