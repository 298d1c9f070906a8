// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet/configuration"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/health"
)

// Node has the folders of a node.
type Node struct{ SysfsRoot, KubeletDir, RunDir string }

// Run offers the GPUs to the kubelet, coordinated with tandem-rdma, until ctx is done. Their health is that
// of tandem-gpu by default.
func (g *GPUs) Run(ctx context.Context, at Node, log *slog.Logger) error {
	node, err := coordination.New(coordination.Config{
		RunDir: at.RunDir, SysRoot: at.SysfsRoot, KubeletDir: at.KubeletDir, Log: log,
		Kubelet: configuration.Files{Config: filepath.Join(at.KubeletDir, configuration.FileName)},
	})
	if err != nil {
		return err
	}
	found, err := gpu.Discover(g, 0, log)
	if err != nil {
		return err
	}
	found.Heed(health.New(health.Default(), os.DirFS(at.SysfsRoot)))
	name := g.maker.Resource
	server, err := deviceplugin.New(deviceplugin.Options{
		KubeletDir: at.KubeletDir, Registration: deviceplugin.Register, Preferred: true, Log: log,
	}, gpu.NewPlugin(name, found, node.Member(name, device.GPU), log))
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{node.Run, found.Run, server.Run} {
		work.Go(func() error { return run(ctx) })
	}
	return work.Wait()
}
