// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/cmd/internal/vfs"
)

// options are the flags. Those that select and find GPUs and VFs are the flags of tandem-gpu and tandem-rdma.
type options struct {
	daemon.Flags
	gpus gpus.Flags
	vfs  vfs.Flags

	kubeconfig string
	podUID     string
	vfsPerPF   int
	pairsAsVFs bool
	drain      bool

	given func(flag string) bool // whether a flag is on the command line
}

// pulse is the preset of --pulse: unlike a device plugin of AMD's this driver has always looked for changes.
const pulse = "30"

func (o *options) register(set *pflag.FlagSet) {
	set.StringVar(&o.kubeconfig, "kubeconfig", "",
		"file that says how to reach the API server; without it that of the cluster which this is a pod of")
	set.StringVar(&o.podUID, "pod-uid", os.Getenv("POD_UID"),
		"UID of this pod, by default $POD_UID: with it the next pod can start before this one ends, without a gap")
	set.IntVar(&o.vfsPerPF, "vfs-per-pf", 16,
		"VFs of a PF that are published at the most, 0 for all: what the scheduler has to look at costs it time")
	set.BoolVar(&o.pairsAsVFs, "pairs-as-vfs", false,
		"have Multus find the VFs of pairs under the VFs' resource name, so that networks of the device plugins "+
			"need no change; pods can then not ask for tandem.dev/pair, only for claims")
	set.BoolVar(&o.drain, "drain", false,
		"take claims back and do nothing else: for a node that has gone back to the device plugins and on which "+
			"pods with claims still run")
	o.RegisterDriver(set)
	stock := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.gpus.Register(set, stock)
	preset(set, "pulse", pulse)
	o.vfs.Register(set, "amd-nic-exporter-socket")
	file := *stock.Lookup("config-file")
	file.Name = "gpu-config-file"
	set.AddFlag(&file)
	set.AddFlagSet(stock)          // the flag added first wins: Tandem's own
	for _, name := range []string{ // flags for device plugins only
		"driver_type", "kubelet-socket", "device-list-strategy", "cdi-annotation-prefix", "pass-device-specs",
		"fail-on-init-error", "mps-root", "shared-devices-allocation-policy",
	} {
		set.Lookup(name).Hidden = true
	}
}

// preset changes the default of a flag.
func preset(set *pflag.FlagSet, name, value string) {
	flag := set.Lookup(name)
	if err := flag.Value.Set(value); err != nil {
		panic(err) // the name is a constant
	}
	flag.DefValue = value
}
