// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// side is an end with the memory of its traffic.
type side struct {
	End
	memory Memory
}

// tester makes the tests of one run. A side in another container is nil.
type tester struct {
	*session
	client, server *side
	host           string // of the server
	tcp            int
}

// usable returns the error of an end that cannot carry traffic.
func (t *tester) usable() error {
	for _, s := range []*side{t.client, t.server} {
		switch {
		case s == nil:
		case s.Err != "":
			return fmt.Errorf("VF %s: %s", s.VF, s.Err)
		case s.memory != Host && !s.GPU.NVIDIA && s.GPU.ROCm < 0:
			return fmt.Errorf("GPU %s is not in the KFD topology, so ROCm does not have the GPU", s.Facts.GPU)
		}
	}
	return nil
}

// bandwidth runs ib_write_bw. Both sides print the client's result.
func (t *tester) bandwidth(ctx context.Context, r *Run) error {
	result, err := t.test(ctx, t.write, t.plan.bandwidth)
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

// latency runs ib_read_lat, in the host's memory if perftest measures no latency of the GPU's.
func (t *tester) latency(ctx context.Context, r *Run) error {
	result, err := t.test(ctx, t.read, t.plan.latency)
	if err != nil && (noGPULatency(result.client) || noGPULatency(result.server)) {
		t.useHost()
		result, err = t.test(ctx, t.read, t.plan.latency)
	}
	if err != nil || t.client == nil {
		return err
	}
	r.LatencyMemory = t.client.memory
	if r.Latency, err = parseLatency(result.client); err != nil {
		return fmt.Errorf("run %s: %w", latencyProgram, err)
	}
	return nil
}

func (t *tester) useHost() {
	for _, s := range []**side{&t.client, &t.server} {
		if *s != nil {
			*s = &side{(*s).End, Host}
		}
	}
}

// outputs are the outputs of the programs of a test; "" for a side in another container.
type outputs struct{ client, server string }

// test runs a program on the sides of this container. The first failure ends the other side and is the error.
func (t *tester) test(
	ctx context.Context, p program, arguments func(e End, tcp int, m Memory) []string,
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
		result.server, err = p.run(ctx, t.environment, arguments(t.server.End, t.tcp, t.server.memory)...)
		if err = errors.Join(err, checkGPU(result.server, t.server.GPU)); err != nil {
			end(fmt.Errorf("server: %w", err))
		}
	}()
	if t.client != nil {
		list := append(arguments(t.client.End, t.tcp, t.client.memory), t.host)
		if result.client, err = t.call(ctx, p, list); err != nil {
			end(err)
		}
	}
	<-served
	if err := context.Cause(ctx); err != nil {
		return result, err
	}
	return result, nil
}

// call runs a client, again if the server does not listen yet.
func (t *tester) call(ctx context.Context, p program, arguments []string) (string, error) {
	for {
		output, err := p.run(ctx, t.environment, arguments...)
		if err == nil || !notServed(output) || ctx.Err() != nil {
			return output, errors.Join(err, checkGPU(output, t.client.GPU))
		}
		select {
		case <-ctx.Done():
			return output, fmt.Errorf("connect to %s: %w: %s", t.host, context.Cause(ctx), reason(output))
		case <-time.After(retry):
		}
	}
}
