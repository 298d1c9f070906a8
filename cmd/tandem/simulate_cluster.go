// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/cluster"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
)

// runCluster simulates a cluster of --nodes nodes.
func (s *simulate) runCluster(cmd *cobra.Command) error {
	if s.svg != "" {
		return usage("--svg is for one node: leave --nodes out")
	}
	if len(s.ways) == 0 {
		s.ways = []string{"tandem"}
	}
	for flag, value := range map[string]struct {
		of    *int
		value int
	}{
		"seeds": {&s.config.Seeds, 4}, "arrivals": {&s.config.Arrivals, 5000}, "warmup": {&s.config.Warmup, 1000},
	} {
		if !cmd.Flags().Changed(flag) {
			*value.of = value.value
		}
	}
	if err := s.parse(); err != nil {
		return usageError{err}
	}
	config, err := s.cluster()
	if err != nil {
		return usageError{err}
	}
	if config.Node, err = s.node(); err != nil {
		return err
	}
	done := showProgress(cmd.ErrOrStderr(), &config.Progress)
	report, err := cluster.Run(cmd.Context(), config)
	done()
	if err != nil {
		return err
	}
	return s.output.write(cmd, report, report.Table)
}

// cluster returns the configuration of a cluster without its node.
func (s *simulate) cluster() (cluster.Config, error) {
	c := &s.config
	schedulers, err := cluster.FindSchedulers(s.schedulers)
	config := cluster.Config{
		Nodes: s.nodes, Rules: world.Rules{Policy: c.Policy, ExcludeTopology: c.ExcludeTopology}, Mix: c.Mix,
		Loads: c.Loads, Burst: s.burst, GPUFirst: c.GPUFirst, Choose: c.Ways[0].Prefer, Schedulers: schedulers,
		Seed: c.Seed, Seeds: c.Seeds, Warmup: c.Warmup, Arrivals: c.Arrivals,
	}
	if err == nil {
		err = config.Check()
	}
	if err == nil && len(c.Ways) != 1 {
		err = fmt.Errorf("--nodes wants one way of choosing devices in --ways, not %d", len(c.Ways))
	}
	return config, err
}
