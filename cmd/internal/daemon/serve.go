package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
)

// Sysfs is the folder to read the machine from.
func (f Flags) Sysfs() (fs.FS, error) {
	info, err := os.Stat(f.SysfsRoot)
	if err != nil {
		return nil, fmt.Errorf("open --sysfs-root: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open --sysfs-root: %s is not a folder", f.SysfsRoot)
	}
	return os.DirFS(f.SysfsRoot), nil
}

// Node is the daemon's part in the coordination of its node.
func (f Flags) Node(log *slog.Logger) (*coordination.Node, error) {
	return coordination.New(coordination.Config{RunDir: f.RunDir, SysRoot: f.SysfsRoot, KubeletDir: f.KubeletDir, Log: log})
}

// Serve offers every resource to the kubelet and takes part in coordination, until ctx is done or one of them fails.
// What else the daemon has to do runs beside them.
func (f Flags) Serve(ctx context.Context, log *slog.Logger, node *coordination.Node, resources []deviceplugin.Resource, beside ...func(context.Context) error) error {
	run := append([]func(context.Context) error{node.Run}, beside...)
	for _, r := range resources {
		run = append(run, func(ctx context.Context) error { return f.Offer(ctx, log, r) })
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, work := range run {
		g.Go(func() error { return work(ctx) })
	}
	return g.Wait()
}

// Offer offers one resource to the kubelet until ctx is done.
func (f Flags) Offer(ctx context.Context, log *slog.Logger, resource deviceplugin.Resource) error {
	server, err := deviceplugin.New(deviceplugin.Options{KubeletDir: f.KubeletDir, Preferred: f.PreferredAllocation, Log: log}, resource)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
