// SPDX-License-Identifier: Apache-2.0

// Package report is what a simulation found, for people as a table and a chart, for programs as JSON.
package report

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/cmd/tandem/simulation/world"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
)

// Report is what a simulation found.
type Report struct {
	Version         document.V1  `json:"version"`
	Node            string       `json:"node"`
	GPUs            int          `json:"gpus"`
	VFs             int          `json:"vfs"`
	PFs             int          `json:"pfs"`
	Policy          hints.Policy `json:"policy"`
	ExcludeTopology bool         `json:"excludeTopology"`
	Mix             world.Mix    `json:"mix"`
	GPUFirst        float64      `json:"gpuFirst"`
	Seed            uint64       `json:"seed"`
	Seeds           int          `json:"seeds"`
	Warmup          int          `json:"warmup"`
	Arrivals        int          `json:"arrivals"`
	Loads           []Load       `json:"loads"`
}

// Load is what came of one load.
type Load struct {
	Load float64 `json:"load"` // share of GPUs allocated that was aimed at, percent
	Rate float64 `json:"rate"` // arrivals per mean holding time
	Ways []Way   `json:"ways"`

	// Bound is the PIX share that no choice at all can exceed, even one that knows when every container comes
	// and goes: for the same admissions on the same NUMA nodes. Null where it cannot be computed.
	Bound *Estimate `json:"bound"`
}

// Way is what came of one way of choosing.
type Way struct {
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	Figures  Figures   `json:"figures"`
	Requests []Request `json:"requests"`
}

// Request is what came of one request of the mix. Figures that mean nothing for it are null.
type Request struct {
	Request world.Request `json:"request"`
	PIX     *Estimate     `json:"pix"`
	Full    *Estimate     `json:"full"`
	Refused *Estimate     `json:"refused"`
}

// Figures are percentages, but for Stranded; null where there was nothing to count.
type Figures struct {
	PIX *Estimate `json:"pix"` // pairs on one switch, of all pairs asked for; no VF counts twice
	// containers with all pairs on one switch, of those that asked for both
	Full      *Estimate `json:"full"`
	OwnPF     *Estimate `json:"ownPF"`     // pairs on one switch that share no PF either, of all pairs
	CrossNUMA *Estimate `json:"crossNUMA"` // pairs across NUMA nodes, of all pairs
	// containers refused, of those for which there were enough free devices
	Refused *Estimate `json:"refused"`
	// how near the GPUs are to each other by PCIe, of the best that was free
	Locality *Estimate `json:"locality"`
	Stranded *Estimate `json:"stranded"` // pairs of free devices that do not share a switch, mean over time
	Load     *Estimate `json:"load"`     // share of GPUs allocated, mean over time
}
