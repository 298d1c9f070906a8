package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/cmd/internal/picture"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// statusTimeout is how long to wait for the plugins: they answer in milliseconds.
const statusTimeout = 5 * time.Second

// status is what the coordinator knows, as -o json prints it.
type status struct {
	PID       int64               `json:"pid"`      // of the plugin that serves
	Protocol  string              `json:"protocol"` // of the plugin that serves
	Plugins   []statusPlugin      `json:"plugins"`
	Resources []statusResource    `json:"resources"`
	Plan      map[string][]string `json:"plan,omitempty"` // by resource: kept for the second half of a container that is being admitted
}

type statusPlugin struct {
	PID       int64    `json:"pid"` // 0 where it cannot be seen from the serving one
	Role      string   `json:"role"`
	Protocol  string   `json:"protocol"`
	Resources []string `json:"resources"`
}

type statusResource struct {
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	Connected bool           `json:"connected"` // its plugin is there now
	Devices   []statusDevice `json:"devices"`
}

type statusDevice struct {
	ID      string  `json:"id"`
	Address string  `json:"address"`
	Switch  string  `json:"switch"`
	NUMA    *uint32 `json:"numa"` // as told to the kubelet
	State   string  `json:"state"`
	Owner   string  `json:"owner,omitempty"` // namespace/pod/container, as far as it is known
}

func newStatus() *cobra.Command {
	var runDir, serve string
	from := source{}
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
			ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
			defer cancel()
			answer, err := coordination.Status(ctx, runDir)
			if err != nil {
				return err
			}
			s := newStatusOf(answer)
			if format.format == asJSON {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			_, err = cmd.OutOrStdout().Write(s.table())
			return err
		},
	}
	cmd.Flags().StringVar(&runDir, "run-dir", "/run/tandem", "the plugins' --run-dir")
	cmd.Flags().VarP(&format, "output", "o", format.usage())
	cmd.Flags().StringVar(&serve, "serve", "", "show a page at this address instead, HOST:PORT; without a host 127.0.0.1, with port 0 one that is free")
	cmd.Flags().StringVar(&from.sysfsRoot, "sysfs-root", "/sys", "with --serve: folder to read the machine from")
	registerTopologyFile(cmd.Flags(), &from.topologyFile)
	return cmd
}

func newStatusOf(answer *api.StatusResponse) status {
	s := status{
		PID: answer.GetPid(), Protocol: protocolText(answer.GetProtocol(), answer.GetMinor()),
		Plugins: []statusPlugin{}, Resources: []statusResource{},
	}
	for _, p := range answer.GetPeers() {
		role := "joined"
		if p.GetServes() {
			role = "serves"
		}
		s.Plugins = append(s.Plugins, statusPlugin{p.GetPid(), role, protocolText(p.GetVersion().GetMajor(), p.GetVersion().GetMinor()), p.GetResources()})
	}
	for name, devices := range answer.GetPlan().GetDevices() {
		if s.Plan == nil {
			s.Plan = map[string][]string{}
		}
		s.Plan[name] = devices.GetIds()
	}
	for _, r := range answer.GetResources() {
		resource := statusResource{Name: r.GetName(), Kind: r.GetKind(), Connected: r.GetConnected(), Devices: []statusDevice{}}
		for _, d := range r.GetDevices() {
			resource.Devices = append(resource.Devices, newStatusDevice(d, slices.Contains(s.Plan[r.GetName()], d.GetDevice().GetId())))
		}
		s.Resources = append(s.Resources, resource)
	}
	return s
}

func protocolText(major, minor uint32) string { return fmt.Sprintf("%d.%d", major, minor) }

func newStatusDevice(d *api.DeviceStatus, planned bool) statusDevice {
	device := statusDevice{
		ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), Switch: d.GetSwitch(), NUMA: d.GetDevice().Numa,
		State: "free", Owner: ownerText(d.GetOwner()),
	}
	switch {
	case d.GetAllocated() && !d.GetDevice().GetHealthy():
		device.State = "allocated, unhealthy"
	case d.GetAllocated():
		device.State = "allocated"
	case !d.GetDevice().GetHealthy():
		device.State = "unhealthy"
	case planned:
		device.State = "planned"
	case d.GetStranded():
		device.State = "stranded"
	}
	return device
}

func ownerText(o *api.Owner) string {
	if o == nil {
		return ""
	}
	return o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
}

// table has the plugins, then the devices by switch.
func (s status) table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PLUGIN\tROLE\tPROTOCOL\tRESOURCES")
	for _, p := range s.Plugins {
		pid := "in another PID namespace"
		if p.PID != 0 {
			pid = fmt.Sprint("PID ", p.PID)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", pid, p.Role, p.Protocol, strings.Join(p.Resources, " "))
	}
	fmt.Fprintln(w)
	w.Flush() // into memory
	fmt.Fprintln(w, "SWITCH\tNUMA\tRESOURCE\tDEVICE\tADDRESS\tSTATE\tOWNER")
	rows := s.rows()
	for i, row := range rows {
		name := row.Switch
		if i > 0 && rows[i-1].Switch == name {
			name = ""
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, numaText(row.NUMA), row.resource, row.ID, row.Address, row.State, cmp.Or(row.Owner, "-"))
	}
	w.Flush() // into memory
	return out.Bytes()
}

type statusRow struct {
	statusDevice
	resource string
}

// rows are the devices of all resources by switch; within one they keep their order.
func (s status) rows() []statusRow {
	var rows []statusRow
	for _, r := range s.Resources {
		name := r.Name
		if !r.Connected {
			name += " (plugin away)"
		}
		for _, d := range r.Devices {
			rows = append(rows, statusRow{d, name})
		}
	}
	slices.SortStableFunc(rows, func(a, b statusRow) int { return cmp.Compare(a.Switch, b.Switch) })
	return rows
}

func numaText(node *uint32) string {
	if node == nil {
		return "-"
	}
	return fmt.Sprint(*node)
}
