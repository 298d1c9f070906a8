// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// Limit is how many pods of a job the kubelet refuses before the job is lost (backoffLimit of a Job).
const Limit = 6

// Config configures a simulation.
type Config struct {
	Node       *world.Node
	Nodes      int // number of nodes, all like Node
	Rules      world.Rules
	Mix        world.Mix
	Loads      []float64                      // offered load: allocated GPUs if no job waited, percent
	Burst      int                            // number of equal pods per arrival
	GPUFirst   float64                        // probability that the kubelet asks for GPUs first
	Choose     func(*world.Node) world.Prefer // how devices are chosen on a node
	Schedulers []Scheduler
	Seed       uint64
	Seeds      int
	Warmup     int // pods before counting starts
	Arrivals   int // measured pods

	// Progress, if not nil, receives the number of finished trials. Calls come from several goroutines, but
	// never concurrently.
	Progress func(done, all int)
}

// Check returns an error for an invalid configuration; it does not check the node.
func (c *Config) Check() error {
	switch {
	case c.Nodes < 1 || c.Nodes > 5000:
		return fmt.Errorf("simulate: want 1 to 5000 nodes, not %d", c.Nodes)
	case len(c.Schedulers) == 0 || len(c.Mix) == 0 || len(c.Loads) == 0:
		return errors.New("simulate: want at least one load, one request and one scheduler")
	}
	for _, load := range c.Loads {
		if !(load > 0 && load < 100) {
			return fmt.Errorf("simulate: load %g is not between 0 and 100 percent", load)
		}
	}
	return world.CheckNumbers(c.Seeds, c.Arrivals, c.Warmup, c.Burst)
}

// rate returns the arrivals of pods per hour for a load in percent, or an error if the mix requests no GPUs.
func (c *Config) rate(load float64) (float64, error) {
	gpus, weights := 0.0, 0.0
	for _, s := range c.Mix {
		gpus += s.Weight * float64(s.Request.GPUs)
		weights += s.Weight
	}
	if gpus == 0 {
		return 0, fmt.Errorf("simulate: no request of %s asks for GPUs", c.Mix)
	}
	return load / 100 * float64(c.Nodes*c.Node.Count(world.GPU)) * weights / gpus, nil
}
