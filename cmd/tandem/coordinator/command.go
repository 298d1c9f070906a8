// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

// asWide is the output format with every device.
const asWide = "wide"

// looker is the command line of status.
type looker struct {
	folders Folders
	serve   string
	watch   bool
	from    machine.Source // with serve
	format  cli.Output
}

// NewStatusCommand returns the command status.
func NewStatusCommand() *cobra.Command {
	l := looker{format: cli.OneOf(cli.AsTable, asWide, cli.AsJSON)}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show free and allocated devices by switch, and their holders",
		Long: `Query the status of the node over the socket of the running plugins. The output shows the free devices, the number of available
pairs (a GPU and a VF on one switch), the plugins and whether their resources are registered with the kubelet, and containers with
pairs on different switches, followed by a line for each switch. Devices of ended containers count as free. Devices of a disconnected
plugin are shown as stale and do not count as free. "?" marks unknown values, "-" what no plugin offers and devices without NUMA hint: NUMA
nodes are the nodes reported to the kubelet; a line NOTE has the reason where the plugins decide about them (excludeTopology). The command
requires root.

A line HEALTH names the devices that are failed (no container gets them) or degraded (chosen last) for one reason; docs/health.md has
the reasons.

-o wide lists every device by switch. A device is free, stranded (free, but without a free device of the other kind on its switch),
allocated, planned (reserved for the second resource of a container during admission) or unhealthy.

--watch repeats the output after each change, until Ctrl-C.

--serve serves the status as a web page with live updates. By default all users of this host can open the page, but no other host
can; set another address, or use a tunnel (kubectl port-forward, ssh -L).`,
		Example: `  tandem status
  tandem status -o wide
  tandem status --watch
  tandem status -o json
  tandem status --serve :8080
  kubectl -n kube-system exec daemonset/tandem-gpu -- tandem status`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.runStatus(cmd) },
	}
	l.registerFlags(cmd)
	return cmd
}

func (l *looker) registerFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	l.folders.registerFlags(flags)
	l.format.Register(cmd)
	flags.BoolVarP(&l.watch, "watch", "w", false, "repeat the output after each change, until Ctrl-C")
	flags.StringVar(&l.serve, "serve", "",
		"serve the status as a web page at this address, HOST:PORT; the default host is 127.0.0.1, and port 0 "+
			"selects a free port")
	flags.StringVar(&l.from.SysfsRoot, "sysfs-root", "/sys",
		"root of sysfs, for --serve and for GPUs that no plugin offers")
	cli.RegisterTopologyFile(flags, &l.from.TopologyFile)
}

func (l *looker) runStatus(cmd *cobra.Command) error {
	switch serves := cmd.Flags().Changed("serve"); {
	case serves && cmd.Flags().Changed("output"):
		return cli.NewUsageError("--serve and --output exclude each other")
	case serves && l.watch:
		return cli.NewUsageError("--serve and --watch exclude each other: the page follows what happens")
	case serves:
		return serveStatus(cmd, l.serve, &Viewer{Folders: l.folders, From: l.from, Title: l.from.Title()})
	case l.watch:
		return l.followStatus(cmd)
	}
	shown, err := l.lookOnce(cmd.Context())
	if err != nil {
		return err
	}
	return l.format.Show(cmd, shown)
}

// lookOnce queries the plugins and the kubelet, and returns their state in the chosen format.
func (l *looker) lookOnce(ctx context.Context) (*cli.Text, error) {
	s, err := l.folders.readStatus(ctx, l.from.SysfsRoot)
	if err != nil {
		return nil, err
	}
	table := s.Table
	if l.format.Format == asWide {
		table = s.WideTable
	}
	return l.format.Text(s, table)
}

// watchPause is the polling interval: changes send no notification.
const watchPause = time.Second

// followStatus shows the state repeatedly until a signal comes.
func (l *looker) followStatus(cmd *cobra.Command) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	show := func(shown *cli.Text) error {
		if l.format.Format != cli.AsJSON { // with one document after the other
			fmt.Fprintf(cmd.OutOrStdout(), "--- %s\n", time.Now().Format(time.TimeOnly))
		}
		return l.format.Show(cmd, shown)
	}
	return watchChanges(ctx, cmd.ErrOrStderr(), l.lookOnce, show)
}

// watchChanges shows the result of look, and each changed result, until ctx is done. A failure of the first
// look is returned; later failures are reported once each.
func watchChanges(
	ctx context.Context, problems io.Writer, look func(context.Context) (*cli.Text, error),
	show func(*cli.Text) error,
) error {
	pause := time.NewTicker(watchPause)
	defer pause.Stop()
	var shown, problem string
	for first := true; ; first = false {
		now, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if text := err.Error(); text != problem {
				fmt.Fprintln(problems, "not up to date:", text)
				problem = text
			}
		case first || problem != "" || now.String() != shown:
			if err := show(now); err != nil {
				return err
			}
			shown, problem = now.String(), ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
	}
}

// serveStatus shows the page of the node until a signal comes.
func serveStatus(cmd *cobra.Command, address string, v *Viewer) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listener, err := ListenPage(address)
	if err != nil {
		return err
	}
	AnnouncePage(cmd.OutOrStdout(), cmd.ErrOrStderr(), listener)
	return v.Serve(ctx, listener)
}

// NewExplainCommand returns the command explain.
func NewExplainCommand() *cobra.Command {
	var q PodQuestion
	var folders Folders
	var created string
	format := cli.OneOf(cli.AsTable, cli.AsJSON)
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]POD]",
		Short: "Explain the device assignment of a pod's containers",
		Long: `Query the plugins' decisions for a pod over their socket: the kubelet's calls in order, the data about the container and its
source, the chosen and the planned devices, and the devices that were offered on each switch ("-" for none), with the pairs
that the switch alone allowed. The verdict on each container comes first. For a container with a pair on different switches,
and for a container that was rejected for this reason, the output also names the current holders of the VFs next to its GPUs,
and a remedy. Without a pod, list all known decisions. Decisions for running containers survive a restart of the serving
plugin; for ended containers the latest decisions are kept until the restart. Decisions for deleted pods of the same name are
shown with --all.

For a pod with status TopologyAffinityError the kubelet has called no plugin. The command then compares the pod's requests with the
devices that each NUMA node and each switch has free now, and names the pods that hold the other devices, and which of them did so
before the rejection. The kubelet lists such pods with Kubernetes 1.37 and later; "kubectl tandem explain" works with any version.
The command requires root.`,
		Example: `  tandem explain
  tandem explain train-0
  tandem explain team/train-0 --container worker -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && q.Container != "" {
				return cli.NewUsageError("want one pod: [NAMESPACE/]POD")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if created != "" {
				q.Present.Created, err = time.Parse(time.RFC3339, created)
				if err != nil {
					return cli.NewUsageError("--created %q: want a time, as in 2026-01-02T15:04:05Z", created)
				}
			}
			if len(args) == 0 {
				var known PodExplanation
				known.Decisions, err = folders.askDecisions(cmd.Context(), q)
				if err != nil {
					return err
				}
				return format.Write(cmd, known, func() *cli.Text { return listDecisions(known.Decisions) })
			}
			if err := q.SetPod(args[0]); err != nil {
				return err
			}
			known, err := folders.Explain(cmd.Context(), q)
			if err != nil {
				return err
			}
			return format.Write(cmd, known, func() *cli.Text {
				return folders.formatText(cmd.Context(), known, q.All)
			})
		},
	}
	cmd.ValidArgsFunction = cli.CompleteFirst(func(cmd *cobra.Command, _ string) ([]string, error) {
		return folders.listPods(cmd.Context())
	})
	q.RegisterFlags(cmd.Flags())
	cmd.Flags().StringVar(&q.Present.UID, "uid", "", "UID of the pod (metadata.uid): decisions with another "+
		"UID are of deleted pods")
	cmd.Flags().StringVar(&created, "created", "", "creation time of the pod (creationTimestamp): earlier "+
		"decisions without a UID are of deleted pods (default recognized by repeated allocations)")
	folders.registerFlags(cmd.Flags())
	format.Register(cmd)
	return cmd
}
