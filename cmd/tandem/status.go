// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// looker is the command line of status.
type looker struct {
	runDir, kubeletDir, serve string
	watch                     bool
	from                      machine.Source // with serve
	format                    output
}

func newStatus() *cobra.Command {
	l := looker{format: oneOf(asTable, asWide, asJSON)}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell what the running plugins know: what is free on which switch, and who has the rest",
		Long: `Ask the running plugins over their socket how the node is: what is free, how many pairs of a GPU and a VF on the same
switch that still makes, the plugins and whether the kubelet goes by their resources, containers that did not get such pairs; then a line for
each switch. What a container has that has ended counts as free. What the devices of a plugin were that is away is stale and counts as not
free. "?" is what nobody tells. NUMA nodes are those that the kubelet is told, so that a pool with excludeTopology has none.

With -o wide it lists every device by switch. A device is free, stranded (free, and nothing of the other kind is free on its switch),
allocated, planned (kept for the second half of a container that is being admitted) or unhealthy. It needs the rights of the plugins, root's.

With --watch it shows the same again whenever something has changed, until Ctrl-C.

With --serve it shows the same as a page, which follows what happens. The page is for browsers on this host alone, whatever user they
are of, unless the address says otherwise; from elsewhere a tunnel leads to it (kubectl port-forward, ssh -L).`,
		Example: `  tandem status
  tandem status -o wide
  tandem status --watch
  tandem status -o json
  tandem status --serve :8080
  kubectl -n kube-system exec daemonset/tandem-gpu -- tandem status`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	}
	l.register(cmd)
	return cmd
}

func (l *looker) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	registerRunDir(flags, &l.runDir)
	flags.StringVar(&l.kubeletDir, "kubelet-dir", kubelet.DefaultDir, "the kubelet's root folder")
	l.format.register(cmd)
	flags.BoolVarP(&l.watch, "watch", "w", false, "show it again whenever something has changed, until Ctrl-C")
	flags.StringVar(&l.serve, "serve", "",
		"show a page at this address instead, HOST:PORT; without a host 127.0.0.1, with port 0 one that is free")
	flags.StringVar(&l.from.SysfsRoot, "sysfs-root", "/sys",
		"folder to read the machine from: with --serve, and for GPUs that no plugin offers")
	registerTopologyFile(flags, &l.from.TopologyFile)
}

func (l *looker) run(cmd *cobra.Command) error {
	switch serves := cmd.Flags().Changed("serve"); {
	case serves && cmd.Flags().Changed("output"):
		return usage("--serve and --output exclude each other")
	case serves && l.watch:
		return usage("--serve and --watch exclude each other: the page follows what happens")
	case serves:
		return serveStatus(cmd, l.serve, &viewer{
			runDir: l.runDir, kubeletDir: l.kubeletDir, from: l.from, palette: picture.Palette{},
		})
	case l.watch:
		return l.follow(cmd)
	}
	shown, err := l.look(cmd.Context())
	if err != nil {
		return err
	}
	return l.print(cmd.OutOrStdout(), shown)
}

// print writes the result of look, folded for the terminal that out writes to.
func (l *looker) print(out io.Writer, shown []byte) error {
	if l.format.format != asJSON {
		shown = fold(shown, columns(out))
	}
	_, err := out.Write(shown)
	return err
}

// look queries the plugins and the kubelet, and returns their state in the chosen format.
func (l *looker) look(ctx context.Context) ([]byte, error) {
	s, err := coordinator.Look(ctx, l.runDir, l.kubeletDir, l.from.SysfsRoot)
	if err != nil {
		return nil, err
	}
	table := s.Table
	if l.format.format == asWide {
		table = s.Wide
	}
	var shown bytes.Buffer
	err = l.format.write(&shown, s, table)
	return shown.Bytes(), err
}
