// SPDX-License-Identifier: Apache-2.0

package dra_test

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/plugins/dra"
	"github.com/tandem-k8s/tandem/plugins/gpu"
)

func contains(list []string, one string) bool { return slices.Contains(list, one) }

// gpusAnew finds the GPUs as they are now, before a driver is started.
func gpusAnew(config *dra.Config, backend gpu.Backend) (err error) {
	config.GPUs, err = gpu.Discover(backend, 0, slog.New(slog.DiscardHandler))
	return err
}

// status is what the driver tells over its socket.
func (n *node) status(t *testing.T) (answer *api.StatusResponse) {
	t.Helper()
	await(t, "the driver tells its status", func() bool {
		told, err := coordination.Status(t.Context(), n.run())
		answer = told
		return err == nil && len(answer.GetResources()) > 0
	})
	return answer
}
