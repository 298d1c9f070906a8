// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Times of a run besides its test: perftest needs seconds for CUDA or ROCm, and waits one second itself.
const (
	overhead = 20 * time.Second
	retry    = 100 * time.Millisecond // between two attempts of a client to connect
)

// Run is the result of the traffic between two pairs.
type Run struct {
	From    int     `json:"from"` // pair that writes; -1: of the other container
	To      int     `json:"to"`   // pair whose memory is written; -1: of the other container
	Memory  Memory  `json:"memory"`
	Gbps    float64 `json:"gbps"`
	Bytes   uint64  `json:"bytes"`        // of the measured time
	Latency float64 `json:"microseconds"` // of a read of 8 bytes, median; 0 for unknown, as on a server
	// LatencyMemory is the host's if perftest does not measure the latency of a GPU's memory.
	LatencyMemory Memory `json:"latencyMemory,omitempty"`
	Err           string `json:"error,omitempty"`

	ended bool // by the time limit
}

// session is the state of one call of Plan.Run.
type session struct {
	plan        *TrafficPlan
	environment []string
	write, read program
}

func (s *session) findPrograms(ctx context.Context) (err error) {
	s.environment = withoutHidden(s.plan.Environment)
	if s.write, err = findProgram(ctx, bandwidthProgram, s.environment); err != nil {
		return err
	}
	s.read, err = findProgram(ctx, latencyProgram, s.environment)
	return err
}

func (s *session) measurePairs(ctx context.Context, ends []End) ([]Run, error) {
	ends = slices.Clone(ends)
	for i := range ends {
		var err error
		if ends[i].Memory, err = s.write.memoryFor(s.plan.Memory, ends[i].GPU); err != nil {
			return nil, fmt.Errorf("pair %d: %w", i, err)
		}
	}
	switch {
	case s.plan.Server:
		return s.serveAll(ctx, ends), nil
	case s.plan.Client != "":
		return s.callAll(ctx, ends), nil
	}
	return s.loopAll(ctx, ends), nil
}

// testTime returns the longest time of both tests of a run.
func (s *session) testTime() time.Duration {
	return time.Duration(s.plan.Seconds)*time.Second + 2*overhead
}

func (s *session) reportProgress(format string, arguments ...any) {
	fmt.Fprintf(s.plan.Progress, format+"\n", arguments...)
}

// loopAll measures the pairs one after another within this container.
func (s *session) loopAll(ctx context.Context, ends []End) []Run {
	runs := make([]Run, len(ends))
	for i := range ends {
		to := i
		if !s.plan.toSelf(len(ends)) {
			to = (i + 1) % len(ends)
		}
		runs[i] = Run{From: i, To: to, Memory: ends[i].Memory}
		if ctx.Err() != nil {
			break
		}
		s.reportProgress("pair %d of %d: %s to %s, memory %s", i, len(ends), ends[i].RDMA, ends[to].RDMA,
			ends[i].Memory)
		t := tester{
			session: s, client: &ends[i], server: &ends[to], host: "127.0.0.1", tcp: s.plan.Port + i,
		}
		t.runTests(ctx, &runs[i], s.testTime())
		if to != i && runs[i].ended {
			runs[i].Err += ": the ports may not reach each other; --traffic-to self omits the fabric"
		}
	}
	return runs
}

// callAll measures the pairs one after another, to the pairs of the same index in the other container. Only
// the first pair waits for the other container, which serves all pairs at the same time.
func (s *session) callAll(ctx context.Context, ends []End) []Run {
	runs, wait := make([]Run, len(ends)), s.plan.Wait
	for i, e := range ends {
		runs[i] = Run{From: i, To: -1, Memory: e.Memory}
		if ctx.Err() != nil {
			break
		}
		s.reportProgress("pair %d of %d: %s to %s, memory %s", i, len(ends), e.RDMA, s.plan.Client, e.Memory)
		t := tester{session: s, client: &e, host: s.plan.Client, tcp: s.plan.Port + i}
		t.runTests(ctx, &runs[i], wait+s.testTime())
		wait = 0
	}
	return runs
}

// serveAll serves all pairs at the same time, because a client that fails omits a pair. The client measures
// one after another. Each pair has the time of all.
func (s *session) serveAll(ctx context.Context, ends []End) []Run {
	runs := make([]Run, len(ends))
	limit := s.plan.Wait + time.Duration(len(ends))*s.testTime()
	var all sync.WaitGroup
	for i, e := range ends {
		runs[i] = Run{From: -1, To: i, Memory: e.Memory}
		s.reportProgress("pair %d of %d: %s waits on TCP port %d, memory %s", i, len(ends), e.RDMA, s.plan.Port+i,
			e.Memory)
		t := tester{session: s, server: &e, tcp: s.plan.Port + i}
		all.Go(func() { t.runTests(ctx, &runs[i], limit) })
	}
	all.Wait()
	return runs
}

// errTime is the cause of the end of a run that took too long.
var errTime = errors.New("no result in time")

// runTests measures bandwidth and then latency, and writes the result or an error into r.
func (t *tester) runTests(ctx context.Context, r *Run, limit time.Duration) {
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %s", errTime, limit))
	defer stop()
	if err := t.measureBoth(ctx, r); err != nil {
		r.Err, r.ended = err.Error(), errors.Is(err, errTime)
	}
}

func (t *tester) measureBoth(ctx context.Context, r *Run) error {
	if err := t.checkEnds(); err != nil {
		return err
	}
	if err := t.measureBandwidth(ctx, r); err != nil {
		return err
	}
	return t.measureLatency(ctx, r)
}

// tester makes the tests of one run. An end in another container is nil.
type tester struct {
	*session
	client, server *End
	host           string // of the server
	tcp            int
}

// checkEnds returns the error of an end that cannot carry traffic.
func (t *tester) checkEnds() error {
	for _, e := range []*End{t.client, t.server} {
		switch {
		case e == nil:
		case e.Err != "":
			return fmt.Errorf("VF %s: %s", e.VF, e.Err)
		case e.Memory != Host && !e.GPU.NVIDIA && e.GPU.ROCm < 0:
			return fmt.Errorf("GPU %s is not in the KFD topology, so ROCm does not have the GPU", e.Facts.GPU)
		}
	}
	return nil
}

// measureBandwidth runs ib_write_bw. Both ends print the client's result.
func (t *tester) measureBandwidth(ctx context.Context, r *Run) error {
	result, err := t.runTest(ctx, t.write, t.plan.bandwidthArguments)
	if err != nil {
		return err
	}
	output := result.client
	if t.client == nil {
		output = result.server
	}
	measured, err := parseBandwidth(output)
	if err != nil {
		return fmt.Errorf("run %s: %w", bandwidthProgram, err)
	}
	r.Gbps, r.Bytes = measured.Gbps, measured.Bytes
	return nil
}

// measureLatency runs ib_read_lat, in the host's memory if perftest measures no latency of the GPU's.
func (t *tester) measureLatency(ctx context.Context, r *Run) error {
	result, err := t.runTest(ctx, t.read, t.plan.latencyArguments)
	if err != nil && (noGPULatency(result.client) || noGPULatency(result.server)) {
		t.useHost()
		result, err = t.runTest(ctx, t.read, t.plan.latencyArguments)
	}
	if err != nil || t.client == nil {
		return err
	}
	r.LatencyMemory = t.client.Memory
	if r.Latency, err = parseLatency(result.client); err != nil {
		return fmt.Errorf("run %s: %w", latencyProgram, err)
	}
	return nil
}

func (t *tester) useHost() {
	for _, e := range []**End{&t.client, &t.server} {
		if *e != nil {
			inHost := **e
			inHost.Memory, *e = Host, &inHost
		}
	}
}

// outputs are the outputs of the programs of a test; "" for an end in another container.
type outputs struct{ client, server string }

// runTest runs a program on the ends of this container. The first failure ends the other one and is the
// error.
func (t *tester) runTest(
	ctx context.Context, p program, arguments func(e *End, tcp int) []string,
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
		if result.client, err = t.runClient(ctx, p, list); err != nil {
			end(err)
		}
	}
	<-served
	if err := context.Cause(ctx); err != nil {
		return result, err
	}
	return result, nil
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
