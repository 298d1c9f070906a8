package coordination

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// pairTimeout is longer than the others: without an answer the container lacks what it is told, not only the
// best devices.
const pairTimeout = 400 * time.Millisecond

// Pair tells for every GPU of the node which of the VFs that were just reported with Allocated serves it,
// nothing where the coordinator does not answer. A pairs file with these VFs gets the GPUs of the container:
// now, or before the Allocate that gives it them is answered.
func (m *Member) Pair(ctx context.Context, ids []string, file string) []pairs.Served {
	ctx, cancel := context.WithTimeout(ctx, pairTimeout)
	defer cancel()
	answer, err := m.askPair(ctx, ids, file)
	if err != nil {
		m.log.Warn("the container is not told of pairs", "devices", ids, "error", err)
		return nil
	}
	var served []pairs.Served
	for _, s := range answer.GetServed() {
		if gpu, err := topology.ParseAddress(s.GetGpu()); err == nil {
			served = append(served, pairs.Served{GPU: gpu, VF: s.GetDevice()})
		}
	}
	return served
}

func (m *Member) askPair(ctx context.Context, ids []string, file string) (*api.PairResponse, error) {
	server, err := m.node.server()
	if err != nil {
		return nil, err
	}
	return server.Pair(ctx, &api.PairRequest{Resource: m.resource, Devices: ids, File: file},
		grpc.WaitForReady(true))
}
