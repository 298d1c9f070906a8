// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/doctor/managers"
	"github.com/tandem-k8s/tandem/cmd/tandem/offer"
	"github.com/tandem-k8s/tandem/topology"
)

// Device is a GPU or VF as its plugin announces the device to the kubelet.
type Device = offer.Device

// Node is the input of an examination.
type Node struct {
	managers.Kubelet
	GPUs, VFs []Device // that the plugins offer
	// why the VFs are those of all NICs with RDMA instead of the offered VFs; "" for offered VFs
	Guess   string
	Mounted string // the ConfigMap of a pod that selects the VFs; "" for none
	Links   []topology.Link
	DevRoot string   // "/dev"
	CDIDir  string   // of the CDI specifications of claims
	RunDir  string   // "/var/lib/kubelet/device-plugins/tandem"
	CPUs    int      // whole CPUs that containers request, for the request shapes; 0 for none
	Notes   []string // features that the DRA driver goes without
	NoGPUs  []string // notes of the DRA driver about GPUs that are not published
	Refused Refused  // see AskRefused
	Plugins Plugins  // see AskPlugins
	// Recorded means a recording: Sys, Tree, GPUs, VFs and Links alone are known.
	Recorded bool
}
