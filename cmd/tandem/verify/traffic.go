// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/plugins/rdma/pools"
	"github.com/tandem-k8s/tandem/topology"
)

// Limits of a TrafficPlan.
const (
	minSeconds, maxSeconds = 1, 60
	maxGiB                 = 4096
	minPort                = 1024
)

// trafficPlan says between which ends traffic flows, how much, and which result is good.
type trafficPlan struct {
	Seconds int // of the bandwidth test of each pair; minSeconds to maxSeconds
	GiB     int // bytes of the bandwidth test instead of Seconds, in GiB; 0 for no limit of its own
	Port    int // TCP port of pair 0, for perftest's exchange of addresses; pair i has port Port+i
	Wait    time.Duration
	Memory  memory // Auto for the GPU's memory if perftest supports the GPU
	To      direction
	Server  bool   // serve the pairs of another container
	Client  string // host of another container that serves; "" for traffic within this container

	Min     int // least bandwidth in percent of the best pair's; 0 to 100
	MinRate int // least bandwidth in percent of the port's rate; 0 to 100

	Environment []string // of perftest
	Progress    io.Writer
}

// direction is the destination of a pair's traffic within one container.
type direction string

// Directions. Two RoCE devices of one network namespace may not reach each other: the kernel resolves the
// address of the other one to the sender's own (addr_resolve in drivers/infiniband/core/addr.c). With fewer
// than three pairs a slow pair slows all runs of a ring.
const (
	toSelf direction = "self" // the pair's own VF, within the NIC
	toNext direction = "next" // the next pair, over the fabric
)

// Validate returns an error for values outside the limits, with the name of the flag.
func (p *trafficPlan) Validate() error {
	switch {
	case p.Seconds < minSeconds || p.Seconds > maxSeconds:
		return fmt.Errorf("--traffic-seconds %d: want %d to %d", p.Seconds, minSeconds, maxSeconds)
	case p.GiB < 0 || p.GiB > maxGiB:
		return fmt.Errorf("--traffic-gib %d: want 0 to %d", p.GiB, maxGiB)
	case p.Port < minPort || p.Port > 65535:
		return fmt.Errorf("--traffic-port %d: want %d to 65535", p.Port, minPort)
	case p.Min < 0 || p.Min > 100:
		return fmt.Errorf("--traffic-min %d: want 0 to 100", p.Min)
	case p.MinRate < 0 || p.MinRate > 100:
		return fmt.Errorf("--traffic-min-rate %d: want 0 to 100", p.MinRate)
	case p.Wait < time.Second || p.Wait > time.Hour:
		return fmt.Errorf("--traffic-wait %s: want 1s to 1h", p.Wait)
	case strings.HasPrefix(p.Client, "-"):
		return fmt.Errorf("--client %s: want a host", p.Client)
	case p.Server && p.Client != "":
		return errors.New("--server and --client exclude each other")
	}
	return nil
}

// Run measures all pairs and judges them. It returns an error only if nothing could be measured; a failed run
// is in the report. The end of ctx ends the programs.
func (p *trafficPlan) Run(ctx context.Context, ends []trafficEnd) (*TrafficReport, error) {
	if len(ends) == 0 {
		return nil, errors.New("measure traffic: the container has no VF")
	}
	if last := p.Port + len(ends) - 1; last > 65535 {
		return nil, fmt.Errorf("measure traffic: pair %d has no TCP port above %d", len(ends)-1, p.Port)
	}
	s := &session{plan: p, environment: slices.DeleteFunc(slices.Clone(p.Environment), hidesGPUs)}
	var err error
	s.write, err = findProgram(ctx, bandwidthProgram, s.environment)
	if err != nil {
		return nil, err
	}
	s.read, err = findProgram(ctx, latencyProgram, s.environment)
	if err != nil {
		return nil, err
	}
	ends = slices.Clone(ends)
	for i := range ends {
		ends[i].Memory, err = s.write.memoryFor(p.Memory, ends[i].GPU)
		if err != nil {
			return nil, fmt.Errorf("pair %d: %w", i, err)
		}
	}
	runs := s.measurePairs(ctx, ends)
	report := judgeRuns(ends, runs, p.Min, p.MinRate)
	report.Seconds, report.GiB, report.Direction = p.Seconds, p.GiB, p.describeDirection(len(ends))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("measure traffic: %w", context.Cause(ctx))
	}
	return report, nil
}

// Directions of a report, for people.
const (
	fromClient = "from the pairs of the client"
	toHost     = "to the pairs of "
	withinNIC  = "from each VF to itself, within the NIC"
	toTheNext  = "to the next pair"
)

// describeDirection returns the destination of the traffic, for people.
func (p *trafficPlan) describeDirection(pairs int) string {
	switch {
	case p.Server:
		return fromClient
	case p.Client != "":
		return toHost + p.Client
	case p.toSelf(pairs):
		return withinNIC
	default:
		return toTheNext
	}
}

// KnownDirection returns the direction without the host of the other container; "" for a text that is none of
// this program.
func (r *TrafficReport) KnownDirection() string {
	switch {
	case strings.HasPrefix(r.Direction, toHost):
		return toHost + "another container"
	case slices.Contains([]string{fromClient, withinNIC, toTheNext}, r.Direction):
		return r.Direction
	default:
		return ""
	}
}

func (p *trafficPlan) toSelf(pairs int) bool {
	return p.To == toSelf || pairs == 1
}

// port is the port of a VF's RDMA device; a VF has one.
const port = "1"

// trafficEnd is a VF, and the GPU of its pair if there is one.
type trafficEnd struct {
	Facts
	GPU    *GPU
	Memory memory // of the traffic; "" before perftest's options are known
	Err    string // why the VF cannot carry traffic; "" if it can
}

// Facts are the properties of a pair that affect its speed. Zero values are unknown.
type Facts struct {
	machine.Pair
	RDMA      string            `json:"rdma"`
	PCIe      topology.PCIeLink `json:"pcie"`     // of the VF's PF
	GPULanes  int               `json:"gpuLanes"` // of the GPU's PCIe link
	GPUMax    int               `json:"gpuMaxLanes"`
	Redirects []string          `json:"redirectAt"` // ports between the two whose ACS redirects traffic
	State     string            `json:"state"`      // of the port: "4: ACTIVE"
	Rate      string            `json:"rate"`       // of the port: "200 Gb/sec (4X HDR)"
	RateGbps  float64           `json:"rateGbps"`
}

// newEnd reads the facts of a VF and of its GPU; nil for none. The files of the port are those of
// Documentation/ABI/stable/sysfs-class-infiniband.
func newEnd(sys fs.FS, tree *topology.Tree, vf topology.Address, gpu *GPU) trafficEnd {
	e := trafficEnd{GPU: gpu}
	e.VF, e.Distance, e.Redirects = vf.String(), topology.UNK, []string{}
	if gpu != nil {
		e.Facts.GPU = gpu.ID
	}
	d, ok := tree.Device(vf)
	if !ok || len(d.RDMA) == 0 {
		e.Err = "the VF has no RDMA device in this container"
		return e
	}
	e.RDMA = d.RDMA[0]
	dir := pools.FunctionFile(vf, "", "infiniband", e.RDMA, "ports", port)
	e.State, e.Rate = pools.ReadText(sys, dir+"/state"), pools.ReadText(sys, dir+"/rate")
	e.RateGbps = parseRate(e.Rate)
	if pf, ok := tree.Device(d.Function()); ok {
		e.PCIe = pf.PCIe
	}
	if gpu == nil {
		return e
	}
	distance := tree.Distance(gpu.Address, vf)
	e.Distance, e.Bridges = distance.Level, &distance.Bridges
	if d, ok := tree.Device(gpu.Address); ok {
		e.GPULanes, e.GPUMax = d.PCIe.Width, d.PCIe.MaxWidth
	}
	for _, p := range tree.Ports(gpu.Address, vf) {
		if p.Redirects {
			e.Redirects = append(e.Redirects, p.Address.String())
		}
	}
	return e
}

// parseRate returns the number of "200 Gb/sec (4X HDR)" or "2.5 Gb/sec (1X SDR)" in Gb/s (rate_show in
// drivers/infiniband/core/sysfs.c); 0 for other text.
func parseRate(rate string) float64 {
	number, unit, _ := strings.Cut(rate, " ")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(n > 0 && n < 1e6) {
		return 0
	}
	return n
}
