package main

import (
	"bytes"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
)

// statusTimeout is how long to wait for the plugins: they answer in milliseconds.
const statusTimeout = 5 * time.Second

// status is what the coordinator knows, as -o json prints it.
type status struct {
	PID       int64            `json:"pid"` // of the plugin that serves
	Resources []statusResource `json:"resources"`
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
	NUMA    *uint32 `json:"numa"` // as told to the kubelet
	State   string  `json:"state"`
	Owner   string  `json:"owner,omitempty"` // namespace/pod/container, as far as it is known
}

func newStatus() *cobra.Command {
	var runDir string
	format := oneOf(asTable, asJSON)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell what the running plugins know: devices, their state and owners",
		Long: `Ask the running plugins over their socket for every device of theirs. A device is free, allocated, planned (kept for
the second half of a container that is being admitted) or unhealthy. It needs the rights of the plugins, root's.`,
		Example: `  tandem status
  tandem status -o json
  kubectl -n kube-system exec daemonset/tandem-gpu -- tandem status`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	return cmd
}

func newStatusOf(answer *api.StatusResponse) status {
	s := status{PID: answer.GetPid(), Resources: []statusResource{}}
	for _, r := range answer.GetResources() {
		planned := map[string]bool{}
		for _, id := range answer.GetPlan().GetDevices()[r.GetName()].GetIds() {
			planned[id] = true
		}
		resource := statusResource{Name: r.GetName(), Kind: r.GetKind(), Connected: r.GetConnected(), Devices: []statusDevice{}}
		for _, d := range r.GetDevices() {
			resource.Devices = append(resource.Devices, newStatusDevice(d, planned[d.GetDevice().GetId()]))
		}
		s.Resources = append(s.Resources, resource)
	}
	return s
}

func newStatusDevice(d *api.DeviceStatus, planned bool) statusDevice {
	device := statusDevice{ID: d.GetDevice().GetId(), Address: d.GetDevice().GetAddress(), NUMA: d.GetDevice().Numa, State: "free"}
	switch {
	case d.GetAllocated():
		device.State = "allocated"
	case !d.GetDevice().GetHealthy():
		device.State = "unhealthy"
	case planned:
		device.State = "planned"
	}
	if o := d.GetOwner(); o != nil {
		device.Owner = o.GetNamespace() + "/" + o.GetPod() + "/" + o.GetContainer()
	}
	return device
}

func (s status) table() []byte {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RESOURCE\tDEVICE\tADDRESS\tNUMA\tSTATE\tOWNER")
	for _, r := range s.Resources {
		name := r.Name
		if !r.Connected {
			name += " (plugin away)"
		}
		for _, d := range r.Devices {
			numa := "-"
			if d.NUMA != nil {
				numa = fmt.Sprint(*d.NUMA)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, d.ID, d.Address, numa, d.State, d.Owner)
		}
	}
	w.Flush() // into memory
	return out.Bytes()
}
