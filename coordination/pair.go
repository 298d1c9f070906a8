// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/bounded"
	"github.com/tandem-k8s/tandem/coordination/pairs"
	"github.com/tandem-k8s/tandem/topology"
)

// Pair returns for every GPU of the node the best of the VFs just reported with Allocated, or nil if the
// coordinator does not answer. If it names a pairs file, the coordinator writes these VFs to it now, and adds
// the container's GPUs before it answers the Allocated with these GPUs. It returns false if the file is not
// written yet.
func (m *Member) Pair(ctx context.Context, vfs []pairs.VF, file string) ([]pairs.Served, bool) {
	ctx, cancel := context.WithTimeout(ctx, bounded.Pairs)
	defer cancel()
	answer, err := m.askPair(ctx, vfs, file)
	if err != nil {
		m.log.Warn("the container is not told of pairs", "vfs", len(vfs), "error", err)
		return nil, false
	}
	var served []pairs.Served
	for _, s := range answer.GetServed() {
		if gpu, err := topology.ParseAddress(s.GetGpu()); err == nil {
			served = append(served, pairs.Served{GPU: gpu, VF: s.GetDevice()})
		}
	}
	return served, answer.GetWritten()
}

func (m *Member) askPair(ctx context.Context, vfs []pairs.VF, file string) (*api.PairResponse, error) {
	server, err := m.node.server()
	if err != nil {
		return nil, err
	}
	q := &api.PairRequest{Resource: m.resource, File: file}
	for _, vf := range vfs {
		q.Devices = append(q.Devices, vf.ID)
		q.Vfs = append(q.Vfs, &api.PairVF{
			Device: vf.ID, Address: vf.Address.String(), Rdma: vf.RDMA, Netdev: vf.Netdev,
		})
	}
	return server.Pair(ctx, q, grpc.WaitForReady(true))
}

// decodeVFs converts the VFs of a request.
func decodeVFs(q *api.PairRequest) ([]pairs.VF, error) {
	var vfs []pairs.VF
	for _, vf := range q.GetVfs() {
		address, err := topology.ParseAddress(vf.GetAddress())
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "pair %s: %v", vf.GetDevice(), err)
		}
		vfs = append(vfs, pairs.VF{
			ID: vf.GetDevice(), Address: address, Resource: q.GetResource(),
			RDMA: vf.GetRdma(), Netdev: vf.GetNetdev(),
		})
	}
	return vfs, nil
}
