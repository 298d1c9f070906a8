// SPDX-License-Identifier: Apache-2.0

// Package qualify turns a node into evidence: a recording of its machine, the findings of doctor, the devices
// that the plugins offer, the placement of containers, the topology that NCCL or RCCL has found, and the
// traffic of pairs.
//
// A [Report] holds the evidence as data, without text from the node: no name of a host, pod, namespace or
// resource, no serial number, MAC address, GUID or UUID. [Report.Judge] derives the results from the evidence
// alone, so that a report can be judged again anywhere, by a later version too.
package qualify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/cmd/tandem/verify"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/nccl"
)

// Report is the evidence of a node, and its results.
type Report struct {
	Version  cli.V1       `json:"version"`
	Tandem   string       `json:"tandem"` // version of the program
	System   nodeSystem   `json:"system"`
	Results  []partResult `json:"results"`  // by part
	Findings []foundID    `json:"findings"` // of tandem doctor
	// devices that the plugins offer; nil if no plugin answers
	Offer *pluginOffer `json:"offer,omitempty"`
	// placement of containers on the empty machine, whose VFs are those of all NICs with RDMA
	Plans []pairPlan `json:"plans"`
	// topology by NCCL or RCCL; nil if unknown
	NCCL *ncclPlaces `json:"nccl,omitempty"`
	// measurements of tandem verify --traffic, by container
	Traffic []measuredTraffic `json:"traffic,omitempty"`
	Machine []string          `json:"machine"` // lines of the recording
}

// nodeSystem names hardware and software of the node. Empty texts are unknown.
type nodeSystem struct {
	Vendor       string `json:"vendor,omitempty"`  // of the server, by its firmware
	Product      string `json:"product,omitempty"` // model of the server, by its firmware
	Architecture string `json:"architecture"`      // as Go names it: "amd64"
	Kernel       string `json:"kernel,omitempty"`  // numbers of the version: "6.8.0"
	NVIDIA       string `json:"nvidia,omitempty"`  // version of NVIDIA's driver
	AMD          string `json:"amd,omitempty"`     // version of the driver amdgpu, if not the kernel's own
}

// foundID is a finding of tandem doctor without its text.
type foundID struct {
	ID       string `json:"id"`
	Severity string `json:"severity"`
}

// pluginOffer is what the plugins offer.
type pluginOffer struct {
	Mode     string            `json:"mode"` // of the node: "device-plugin" or "dra"
	Devices  []offeredDevice   `json:"devices"`
	Rejected []rejectedDevices `json:"rejected,omitempty"` // VFs that config.json does not select
}

// offeredDevice is an offered GPU, partition or VF.
type offeredDevice struct {
	Kind    string            `json:"kind"` // "gpu" or "vf"
	Address topology.Address  `json:"address"`
	NUMA    topology.NUMANode `json:"numa"`             // node in the device's TopologyInfo
	Health  string            `json:"health,omitempty"` // "failed" or "degraded"
}

// rejectedDevices counts devices that a selector of config.json rejects, by a key of the selector.
type rejectedDevices struct {
	Pool     int    `json:"pool"`     // place of the resource in config.json, from 1
	Selector int    `json:"selector"` // place of the selector in the resource, from 1
	Key      string `json:"key"`
	Count    int    `json:"count"`
}

// pairPlan is the placement of a container with as many GPUs as VFs.
type pairPlan struct {
	Count int            `json:"count"` // of GPUs, and of VFs
	Nodes []int          `json:"nodes"` // NUMA nodes of the Topology Manager
	Pairs []machine.Pair `json:"pairs"`
}

// measuredTraffic is the measurement of a container's pairs.
type measuredTraffic struct {
	Seconds   int            `json:"seconds"`
	Direction string         `json:"direction"`
	Failures  int            `json:"failures"` // of the places, the pairs file and the traffic
	Pairs     []measuredPair `json:"pairs"`
	Places    []machine.Pair `json:"places"` // pairs by sysfs
}

// measuredPair is the traffic of a pair.
type measuredPair struct {
	machine.Pair
	verify.Speed
	Good bool `json:"good"` // no threshold of the measurement is missed
}

// ncclPlaces has the places of GPUs and NICs in a topology file of NCCL or RCCL.
type ncclPlaces struct {
	GPUs []nccl.Function `json:"gpus"`
	NICs []nccl.Function `json:"nics"`
}

// Limits of the lists that Judge compares with each other, for an untrusted report.
const (
	mostPlaces = 1024   // GPUs, and NICs, of NCCL's topology
	mostPairs  = 10_000 // of all containers
)

// checkSize returns an error if a list exceeds its limit.
func (r *Report) checkSize() error {
	if r.NCCL != nil && max(len(r.NCCL.GPUs), len(r.NCCL.NICs)) > mostPlaces {
		return fmt.Errorf("nccl: %d GPUs and %d NICs, and %d of each are the most that are compared",
			len(r.NCCL.GPUs), len(r.NCCL.NICs), mostPlaces)
	}
	pairs := 0
	for _, t := range r.Traffic {
		pairs += max(len(t.Pairs), len(t.Places))
	}
	if pairs > mostPairs {
		return fmt.Errorf("traffic: %d pairs, and %d are the most that are judged", pairs, mostPairs)
	}
	return nil
}

// Read reads a report. Errors name the key.
func Read(from io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(from, machine.MostReport+1))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if len(text) > machine.MostReport {
		return nil, fmt.Errorf("read report: larger than %d MiB", machine.MostReport>>20)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read report: %w; is the file written by tandem qualify?", err)
	}
	if len(r.Machine) == 0 {
		return nil, fmt.Errorf("read report: no key machine; is the file written by tandem qualify?")
	}
	return &r, nil
}

// WriteTo writes the report. Equal reports give equal bytes.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // links have "->"
	encoder.SetIndent("", " ")
	if err := encoder.Encode(r); err != nil {
		return 0, fmt.Errorf("write report: %w", err)
	}
	return text.WriteTo(w)
}

// most is the number of details that Table shows of a part.
const most = 8

// marks are the verdicts of the text for people.
var marks = map[Verdict]cli.Verdict{passed: cli.Good, incomplete: cli.Doubtful, failed: cli.Bad}

// Table returns the results for people. A text of a foreign report cannot start a line.
func (r *Report) Table() *cli.Text {
	var out cli.Text
	out.Row("PART", "VERDICT", "RESULT")
	for _, result := range r.Results {
		out.Row(result.Part, marks[result.Verdict].Of(result.Verdict), result.Summary)
	}
	for _, result := range r.Results {
		for i, detail := range result.Details {
			if i == most {
				fmt.Fprintf(&out, "%s: and %d more\n", result.Part, len(result.Details)-most)
				break
			}
			if i == 0 {
				out.Line()
			}
			out.Line(result.Part, ": ", detail)
		}
	}
	return &out
}
