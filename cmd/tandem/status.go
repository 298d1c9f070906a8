package main

import (
	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
)

func newStatus() *cobra.Command {
	var runDir, serve string
	from := machine.Source{}
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell what the running plugins know: devices, their state and owners",
		Long: `Ask the running plugins over their socket for every device of theirs, by switch. A device is free, stranded (free, and
nothing of the other kind is free on its switch), allocated, planned (kept for the second half of a container that is being
admitted) or unhealthy. It needs the rights of the plugins, root's.

With --serve it shows the same as a page, which follows what happens. The page is for browsers on this host alone, whatever user they
are of, unless the address says otherwise; from elsewhere a tunnel leads to it (kubectl port-forward, ssh -L).`,
		Example: `  tandem status
  tandem status -o json
  tandem status --serve :8080
  kubectl -n kube-system exec daemonset/tandem-gpu -- tandem status`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("serve") && cmd.Flags().Changed("output"):
				return usage("--serve and --output exclude each other")
			case cmd.Flags().Changed("serve"):
				return serveStatus(cmd, serve, &viewer{runDir: runDir, from: from, palette: picture.Palette{}})
			}
			answer, err := coordinator.AskStatus(cmd.Context(), runDir)
			if err != nil {
				return err
			}
			s := coordinator.NewStatus(answer)
			if format.format == asJSON {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			_, err = cmd.OutOrStdout().Write(s.Table())
			return err
		},
	}
	cmd.Flags().StringVar(&runDir, "run-dir", "/run/tandem", "the plugins' --run-dir")
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	cmd.Flags().StringVar(&serve, "serve", "",
		"show a page at this address instead, HOST:PORT; without a host 127.0.0.1, with port 0 one that is free")
	cmd.Flags().StringVar(&from.SysfsRoot, "sysfs-root", "/sys", "with --serve: folder to read the machine from")
	registerTopologyFile(cmd.Flags(), &from.TopologyFile)
	return cmd
}
