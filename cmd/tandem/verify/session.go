// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Times of a run besides its test: perftest needs seconds for CUDA or ROCm, and waits one second itself.
const (
	overhead = 20 * time.Second
	retry    = 100 * time.Millisecond // between two attempts of a client to connect
)

// trafficRun is the result of the traffic between two pairs.
type trafficRun struct {
	From    int     `json:"from"` // pair that writes; -1: of the other container
	To      int     `json:"to"`   // pair whose memory is written; -1: of the other container
	Memory  memory  `json:"memory"`
	Gbps    float64 `json:"gbps"`
	Bytes   uint64  `json:"bytes"`        // of the measured time
	Latency float64 `json:"microseconds"` // of a read of 8 bytes, median; 0 for unknown, as on a server
	// LatencyMemory is the host's if perftest does not measure the latency of a GPU's memory.
	LatencyMemory memory `json:"latencyMemory,omitempty"`
	Err           string `json:"error,omitempty"`

	ended bool // by the time limit
}

// session is the state of one call of Plan.Run.
type session struct {
	plan        *trafficPlan
	environment []string
	write, read program
}

// testTime returns the longest time of both tests of a run.
func (s *session) testTime() time.Duration {
	return time.Duration(s.plan.Seconds)*time.Second + 2*overhead
}

// measurePairs measures the pairs one after another: within this container, or to the pairs of the same index
// in the other container. Only the first pair waits for the other container, which serves all pairs at the
// same time, because a client that fails omits a pair; each of its pairs has the time of all.
func (s *session) measurePairs(ctx context.Context, ends []trafficEnd) []trafficRun {
	runs := make([]trafficRun, len(ends))
	var served sync.WaitGroup
	for i := range ends {
		if ctx.Err() != nil {
			break
		}
		e, p := &ends[i], s.plan
		t, limit := tester{session: s, tcp: p.Port + i}, s.testTime()
		var progress string
		switch {
		case p.Server:
			runs[i], t.server, limit = trafficRun{From: -1, To: i}, e, p.Wait+time.Duration(len(ends))*limit
			progress = fmt.Sprintf("%s waits on TCP port %d", e.RDMA, t.tcp)
		case p.Client != "":
			runs[i], t.client, t.host = trafficRun{From: i, To: -1}, e, p.Client
			progress = e.RDMA + " to " + p.Client
			if i == 0 {
				limit += p.Wait
			}
		default:
			to := i
			if !p.toSelf(len(ends)) {
				to = (i + 1) % len(ends)
			}
			runs[i], t.client, t.server, t.host = trafficRun{From: i, To: to}, e, &ends[to], "127.0.0.1"
			progress = e.RDMA + " to " + ends[to].RDMA
		}
		runs[i].Memory = e.Memory
		fmt.Fprintf(p.Progress, "pair %d of %d: %s, memory %s\n", i, len(ends), progress, e.Memory)
		if p.Server {
			served.Go(func() { t.runTests(ctx, &runs[i], limit) })
			continue
		}
		t.runTests(ctx, &runs[i], limit)
		if to := runs[i].To; to >= 0 && to != i && runs[i].ended {
			runs[i].Err += ": the ports may not reach each other; --traffic-to self omits the fabric"
		}
	}
	served.Wait()
	return runs
}

// errTime is the cause of the end of a run that took too long.
var errTime = errors.New("no result in time")

// runTests measures bandwidth and then latency, and writes the result or an error into r.
func (t *tester) runTests(ctx context.Context, r *trafficRun, limit time.Duration) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %s", errTime, limit))
	defer stop()
	err := t.checkEnds()
	if err == nil {
		err = t.measureBandwidth(ctx, r)
	}
	if err == nil {
		err = t.measureLatency(ctx, r)
	}
	if err != nil {
		r.Err, r.ended = err.Error(), errors.Is(err, errTime)
	}
}

// tester makes the tests of one run. An end in another container is nil.
type tester struct {
	*session
	client, server *trafficEnd
	host           string // of the server
	tcp            int
}

// checkEnds returns the error of an end that cannot carry traffic.
func (t *tester) checkEnds() error {
	for _, e := range []*trafficEnd{t.client, t.server} {
		switch {
		case e == nil:
		case e.Err != "":
			return fmt.Errorf("VF %s: %s", e.VF, e.Err)
		case e.Memory != hostMemory && !e.GPU.nvidia && e.GPU.rocm < 0:
			return fmt.Errorf("GPU %s is not in the KFD topology, so ROCm does not have the GPU", e.Facts.GPU)
		}
	}
	return nil
}

// measureBandwidth runs ib_write_bw. Both ends print the client's result.
func (t *tester) measureBandwidth(ctx context.Context, r *trafficRun) error {
	result, err := t.runTest(ctx, t.write, t.plan.bandwidthArguments)
	if err != nil {
		return err
	}
	output := result.client
	if t.client == nil {
		output = result.server
	}
	r.Gbps, r.Bytes, err = parseBandwidth(output)
	if err != nil {
		return fmt.Errorf("run %s: %w", bandwidthProgram, err)
	}
	return nil
}

// measureLatency runs ib_read_lat, in the host's memory if perftest measures no latency of the GPU's.
func (t *tester) measureLatency(ctx context.Context, r *trafficRun) error {
	result, err := t.runTest(ctx, t.read, t.plan.latencyArguments)
	if err != nil && (noGPULatency(result.client) || noGPULatency(result.server)) {
		for _, e := range []**trafficEnd{&t.client, &t.server} {
			if *e != nil {
				inHost := **e
				inHost.Memory, *e = hostMemory, &inHost
			}
		}
		result, err = t.runTest(ctx, t.read, t.plan.latencyArguments)
	}
	if err != nil || t.client == nil {
		return err
	}
	r.LatencyMemory = t.client.Memory
	r.Latency, err = parseLatency(result.client)
	if err != nil {
		return fmt.Errorf("run %s: %w", latencyProgram, err)
	}
	return nil
}

// outputs are the outputs of the programs of a test; "" for an end in another container.
type outputs struct{ client, server string }

// runTest runs a program on the ends of this container. The first failure ends the other one and is the
// error.
func (t *tester) runTest(
	ctx context.Context, p program, arguments func(e *trafficEnd, tcp int) []string,
) (result outputs, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if t.server == nil {
			return
		}
		var err error
		result.server, err = p.runProgram(ctx, t.environment, arguments(t.server, t.tcp)...)
		if err = errors.Join(err, checkGPU(result.server, t.server.GPU)); err != nil {
			end(fmt.Errorf("server: %w", err))
		}
	}()
	if t.client != nil {
		list := append(arguments(t.client, t.tcp), t.host)
		result.client, err = t.runClient(ctx, p, list)
		if err != nil {
			end(err)
		}
	}
	<-served
	return result, context.Cause(ctx)
}

// runClient runs a client, again if the server does not listen yet.
func (t *tester) runClient(ctx context.Context, p program, arguments []string) (string, error) {
	for {
		output, err := p.runProgram(ctx, t.environment, arguments...)
		if err == nil || !notServed(output) || ctx.Err() != nil {
			return output, errors.Join(err, checkGPU(output, t.client.GPU))
		}
		select {
		case <-ctx.Done():
			return output, fmt.Errorf("connect to %s: %w: %s", t.host, context.Cause(ctx), failureReason(output))
		case <-time.After(retry):
		}
	}
}
