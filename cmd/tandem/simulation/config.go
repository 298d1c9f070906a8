// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Config says what to simulate.
type Config struct {
	Node            *world.Node
	Policy          hints.Policy
	ExcludeTopology bool
	Mix             world.Mix
	Loads           []float64 // shares of GPUs allocated, percent
	GPUFirst        float64   // probability that the kubelet asks for the GPUs first
	Seed            uint64
	Seeds           int
	Warmup          int // arrivals before counting starts
	Arrivals        int // arrivals that count
	Ways            []Way

	// Progress is told how many of all trials are done, if it is not nil. It is called from several goroutines,
	// one at a time.
	Progress func(done, all int)
}

// Check finds what is wrong with a configuration, the node aside.
func (c *Config) Check() error {
	switch {
	case len(c.Ways) == 0 || len(c.Mix) == 0 || len(c.Loads) == 0:
		return errors.New("simulate: want at least one load, one request and one way of choosing")
	case c.Seeds < 1 || c.Arrivals < 1 || c.Warmup < 0:
		return errors.New("simulate: want at least one seed and one arrival")
	case !(c.GPUFirst >= 0 && c.GPUFirst <= 1): // NaN is neither
		return fmt.Errorf("simulate: probability %g is not between 0 and 1", c.GPUFirst)
	}
	for _, load := range c.Loads {
		if !(load > 0 && load < 100) {
			return fmt.Errorf("simulate: load %g is not between 0 and 100 percent", load)
		}
	}
	return nil
}
