// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/internal/daemon"
	"github.com/tandem-k8s/tandem/cmd/internal/gpus"
	"github.com/tandem-k8s/tandem/cmd/internal/plainflag"
	"github.com/tandem-k8s/tandem/cmd/internal/vfs"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
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

func (o *options) register(set *pflag.FlagSet) {
	set.StringVar(&o.kubeconfig, "kubeconfig", "",
		"kubeconfig file for the API server (default the in-cluster configuration)")
	set.StringVar(&o.podUID, "pod-uid", os.Getenv("POD_UID"),
		"UID of this pod, for rolling updates in which the new pod starts before the old pod ends "+
			"(default $POD_UID)")
	set.IntVar(&o.vfsPerPF, "vfs-per-pf", pool.DefaultVFsPerPF,
		"maximum number of published VFs of a PF, 0 for all; more devices cost scheduling time")
	set.BoolVar(&o.pairsAsVFs, "pairs-as-vfs", false,
		"provide the VFs of pairs to Multus under the VFs' own resource name, so that networks of the "+
			"device plugins "+
			"need no change; pods then cannot request the extended resource tandem.dev/pair, only claims")
	set.BoolVar(&o.drain, "drain", false,
		"only unprepare claims, and publish no device; for a node in device-plugin mode with running pods that "+
			"still have claims")
	plainflag.Cluster.Put(set, "kubeconfig", "pod-uid")
	plainflag.DRA.PutRest(set)
	o.RegisterDriver(set)
	stock := o.gpus.RegisterDriver(set)
	o.vfs.Register(set, "amd-nic-exporter-socket")
	gpus.AddStock(set, stock)
}
