// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/coordination/spelling"
	"github.com/tandem-k8s/tandem/topology"
)

// NewCommand returns the command verify.
func NewCommand() *cobra.Command {
	v := Check{}
	var measured traffics
	var within string
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify inside a pod that its GPUs and VFs are on the same switches",
		Long: `Verify, inside a pod, that every GPU of the container has a VF on its own PCIe switch or, on NVIDIA Grace
and Vera, on its own CPU (C2C). The VFs come from the environment (PCIDEVICE_*), the GPUs from the device nodes in /dev/dri (AMD) and
in /dev (NVIDIA), or from NVIDIA_VISIBLE_DEVICES. All locations are read from sysfs, independently of the plugins. The container
needs no privileges; a privileged container has the device nodes of all GPUs.

If a DMA function (Data Direct) is beside the GPU, only root reads which NIC the function belongs to. Other users verify such a pair by
the pairs file, and the output names the pair; without the file the distance is unknown (UNK), which is a failure.

With --traffic the command also measures the bandwidth and latency of each pair with perftest (ib_write_bw, ib_read_lat), which has
to be in the container's image; one pair after another. Without --server and --client the traffic stays in this container: from each
VF to itself, or with --traffic-to next from each pair to the next one. Progress is on standard error.`,
		Example: `  tandem verify
  tandem verify --gpus 4 --vfs 4
  tandem verify --within PHB -o json
  tandem verify --traffic --traffic-min 90
  tandem verify --traffic --server
  tandem verify --traffic --client 10.1.2.3`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v.Environment = os.Environ()
			err := v.Within.UnmarshalText([]byte(within))
			if err != nil {
				return err
			}
			v.Traffic, err = measured.planTraffic(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			result, err := v.Run(ctx)
			if err != nil {
				return err
			}
			err = format.Write(cmd, result, result.Table)
			if err == nil && len(result.Failures) > 0 {
				err = errors.New(strings.Join(result.Failures, "; "))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&v.SysfsRoot, "sysfs-root", "/sys", "root of sysfs")
	cli.RegisterTopologyFile(cmd.Flags(), &v.Topology)
	cmd.Flags().StringVar(&v.DevRoot, "dev-root", "/dev", "folder of the device nodes")
	cmd.Flags().StringVar(&v.ProcRoot, "proc-root", "/proc",
		"root of procfs, for the GPUs of NVIDIA's driver")
	cmd.Flags().StringVar(&v.PairsFile, "pairs", pairs.Mount,
		"pairs file of the container, written by the plugins; optional")
	cmd.Flags().IntVar(&v.GPUs, "gpus", -1, "required number of GPUs; -1 for one or more")
	cmd.Flags().IntVar(&v.VFs, "vfs", -1, "required number of VFs; -1 for one or more")
	levels := []string{"PIX", "PXB", "C2C", "PHB", "NODE", "SYS"} // not UNK
	plainflag.Choice(cmd.Flags(), &within, "within", topology.C2C.String(),
		"maximum accepted `DISTANCE` of a pair: PIX, PXB, C2C, PHB, NODE or SYS", levels...)
	cli.CompleteFlag(cmd, "within", cli.FixedValues(levels...))
	cmd.Flags().BoolVar(&v.InOrder, "in-order", false,
		"also fail unless the i-th VF pairs with the i-th GPU")
	measured.registerFlags(cmd)
	format.Register(cmd)
	return cmd
}

// traffics are the flags of verify --traffic.
type traffics struct {
	wanted bool
	trafficPlan
}

func (t *traffics) registerFlags(cmd *cobra.Command) {
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
	addChoice(cmd, (*string)(&t.Memory), "traffic-memory", "memory of the traffic",
		string(autoMemory), string(dmaBuf), string(peerMemory), string(hostMemory))
	addChoice(cmd, (*string)(&t.To), "traffic-to", "destination of the traffic within the container",
		string(toSelf), string(toNext))
}

// addChoice adds a flag with a fixed set of values, the first of which is the default.
func addChoice(cmd *cobra.Command, value *string, name, what string, allowed ...string) {
	plainflag.Choice(cmd.Flags(), value, name, allowed[0], what+": "+spelling.List(allowed), allowed...)
	cli.CompleteFlag(cmd, name, cli.FixedValues(allowed...))
}

// planTraffic returns the plan of the flags, nil without --traffic.
func (t *traffics) planTraffic(cmd *cobra.Command) (*trafficPlan, error) {
	if !t.wanted {
		var err error
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if strings.HasPrefix(f.Name, "traffic-") || f.Name == "server" || f.Name == "client" {
				err = cli.NewUsageError("--%s needs --traffic", f.Name)
			}
		})
		return nil, err
	}
	if err := t.Validate(); err != nil {
		return nil, cli.NewUsageError("%w", err)
	}
	t.Environment, t.Progress = os.Environ(), cmd.ErrOrStderr()
	return &t.trafficPlan, nil
}
