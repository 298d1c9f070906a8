// SPDX-License-Identifier: Apache-2.0

// Package report presents the result of a simulation, as a table for people and as JSON for programs.
package report

import (
	"github.com/tandem-k8s/tandem/cmd/tandem/document"
	"github.com/tandem-k8s/tandem/coordination/kubelet/hints"
	"github.com/tandem-k8s/tandem/test/simulate/world"
)

// Report is the result of a simulation.
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

// Load is the result of one load.
type Load struct {
	Load float64 `json:"load"` // target share of allocated GPUs, percent
	Rate float64 `json:"rate"` // arrivals per mean holding time
	Ways []Way   `json:"ways"`
}

// Way is the result of one way of choosing.
type Way struct {
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	Figures  Figures   `json:"figures"`
	Requests []Request `json:"requests"`
}

// Request is the result of one request of the mix. Figures without a meaning for the request are null.
type Request struct {
	Request world.Request `json:"request"`
	PIX     *Estimate     `json:"pix"`
	Full    *Estimate     `json:"full"`
	Refused *Estimate     `json:"refused"`
}

// Figures are percentages, except Stranded; null without a value.
type Figures struct {
	PIX *Estimate `json:"pix"` // pairs on one switch, of all requested pairs; no VF counts twice
	// containers with all pairs on one switch, of those with both kinds
	Full      *Estimate `json:"full"`
	OwnPF     *Estimate `json:"ownPF"`     // pairs on one switch that share no PF either, of all pairs
	CrossNUMA *Estimate `json:"crossNUMA"` // pairs across NUMA nodes, of all pairs
	// refused containers, of those with enough free devices
	Refused *Estimate `json:"refused"`
	// nearness of the GPUs by PCIe, relative to the best free set
	Locality *Estimate `json:"locality"`
	Stranded *Estimate `json:"stranded"` // pairs of free devices that do not share a switch, mean over time
	Load     *Estimate `json:"load"`     // share of GPUs allocated, mean over time
}
