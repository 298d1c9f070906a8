// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/cli"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
)

// traffics are the flags of verify --traffic.
type traffics struct {
	wanted     bool
	memory, to string
	verify.TrafficPlan
}

func (t *traffics) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&t.wanted, "traffic", false, "measure bandwidth and latency of each pair with perftest")
	flags.BoolVar(&t.Server, "server", false, "with --traffic: serve the pairs of a container with --client")
	flags.StringVar(&t.Client, "client", "",
		"with --traffic: measure to the pairs of the container at `HOST`, which runs --server")
	flags.IntVar(&t.Seconds, "traffic-seconds", 5, "duration of the bandwidth test of each pair, 1 to 60")
	flags.IntVar(&t.GiB, "traffic-gib", 0,
		"bytes of the bandwidth test of each pair, in GiB, instead of a duration; 0 for a duration")
	flags.IntVar(&t.Min, "traffic-min", 80,
		"required bandwidth of each pair, in percent of the best pair's")
	flags.IntVar(&t.MinRate, "traffic-min-rate", 0,
		"required bandwidth of each pair, in percent of the port's rate")
	flags.IntVar(&t.Port, "traffic-port", 18515, "TCP port of the first pair; the others have the next ports")
	flags.DurationVar(&t.Wait, "traffic-wait", 2*time.Minute, "time to wait for the other container")
	addChoice(cmd, &t.memory, "traffic-memory", "memory of the traffic",
		string(verify.Auto), string(verify.DMABuf), string(verify.Peer), string(verify.Host))
	addChoice(cmd, &t.to, "traffic-to", "destination of the traffic within the container",
		string(verify.ToSelf), string(verify.ToNext))
	plainflag.Traffic.PutRest(flags)
}

// addChoice adds a flag with a fixed set of values, the first of which is the default.
func addChoice(cmd *cobra.Command, value *string, name, what string, allowed ...string) {
	plainflag.Choice(cmd.Flags(), value, name, allowed[0], what+": "+plainflag.List(allowed), allowed...)
	cli.Complete(cmd, name, cli.Fixed(allowed...))
}

// plan returns the plan of the flags, nil without --traffic.
func (t *traffics) plan(cmd *cobra.Command) (*verify.TrafficPlan, error) {
	if !t.wanted {
		var err error
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Name, "traffic-") || f.Name == "server" || f.Name == "client" {
				err = cli.Usage("--%s needs --traffic", f.Name)
			}
		})
		return nil, err
	}
	t.Memory, t.To = verify.Memory(t.memory), verify.Direction(t.to)
	if err := t.Validate(); err != nil {
		return nil, cli.Usage("%w", err)
	}
	t.Environment, t.Progress = os.Environ(), cmd.ErrOrStderr()
	return &t.TrafficPlan, nil
}
