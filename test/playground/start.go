// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tandem-k8s/tandem/cmd/tandem/coordinator"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
	"github.com/tandem-k8s/tandem/test/playground/kubelet"
)

// startTime limits the wait for the daemons, which are ready within a second on an idle machine.
const startTime = 30 * time.Second

// Start starts the kubelet and the daemons. It returns when the kubelet has the devices of both and both take
// part in the coordination. After an error, Close stops what has been started.
func (p *Playground) Start(ctx context.Context) (err error) {
	if err := p.judge(); err != nil {
		return err
	}
	for _, f := range slices.Concat(p.machine.GPUs, p.machine.RDMANICs()) {
		if err := p.sysfsOf(f).complete(); err != nil {
			return err
		}
	}
	rule := model.Rule{Policy: model.Restricted, MaxNodes: allNodes}
	p.kubelet, err = kubelet.Start(p.KubeletDir(), rule)
	if err != nil {
		return err
	}
	p.gpu, p.rdma = p.gpuDaemon(), p.rdmaDaemon()
	for _, d := range []*daemon{p.gpu, p.rdma} {
		if err := d.start(); err != nil {
			return err
		}
	}
	return p.ready(ctx)
}

// allNodes lifts the kubelet's limit on NUMA nodes, as its option max-allowable-numa-nodes does.
const allNodes = 64

// judge returns the reason for which no pair can be tried on the machine, or nil.
func (p *Playground) judge() error {
	if len(p.machine.GPUs) == 0 {
		return fmt.Errorf("play on %s: the machine has no GPU", p.title)
	}
	if len(p.machine.RDMANICs()) == 0 {
		return fmt.Errorf("play on %s: the machine has no NIC with RDMA", p.title)
	}
	return nil
}

// gpuDaemon returns tandem-gpu, or the stand-in for machines on which tandem-gpu finds no GPU.
func (p *Playground) gpuDaemon() *daemon {
	d := &daemon{name: "tandem-gpu", log: p.path("tandem-gpu.log")}
	if p.standIn == nil {
		flags := append(p.commonFlags(), "--cdi-root="+p.path("cdi"))
		d.launch = program(filepath.Join(p.options.Programs, d.name), flags...)
		return d
	}
	d.name = "stand-in for tandem-gpu"
	d.launch = inProcess(func(ctx context.Context, log *slog.Logger) error {
		return p.standIn.run(ctx, p.Layout, log)
	})
	return d
}

func (p *Playground) rdmaDaemon() *daemon {
	const name = "tandem-rdma"
	flags := append(p.commonFlags(), "--config-file="+p.config(), "--devinfo-dir="+p.path("devinfo"))
	return &daemon{
		name: name, log: p.path(name + ".log"), launch: program(filepath.Join(p.options.Programs, name), flags...),
	}
}

// commonFlags returns the flags that both daemons have.
func (p *Playground) commonFlags() []string {
	f := p.Flags()
	return []string{f.Sysfs, f.Dev, f.Kubelet, f.Run}
}

// lookPause is the pause between two questions to the daemons, which have no notification.
const lookPause = 20 * time.Millisecond

// ready waits until the kubelet has healthy devices of both daemons, both take part in the coordination, and
// the coordinator reads the kubelet's pods.
func (p *Playground) ready(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	var watches sync.WaitGroup // no watch reads a daemon that is started again
	defer func() { fail(nil); watches.Wait() }()
	for _, d := range []*daemon{p.gpu, p.rdma} {
		watches.Go(func() {
			select {
			case <-d.exited:
				fail(errors.Join(fmt.Errorf("%s has ended", d.name), d.err))
			case <-ctx.Done():
			}
		})
	}
	if err := p.kubelet.Await(ctx, p.gpus.Resource, VF); err != nil {
		return err
	}
	return p.poll(ctx, "the coordination of the plugins", func() bool { return p.joined(ctx) })
}

// poll waits until a condition is true, or ctx is done.
func (p *Playground) poll(ctx context.Context, subject string, condition func() bool) error {
	pause := time.NewTicker(lookPause)
	defer pause.Stop()
	for !condition() {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", subject, context.Cause(ctx))
		}
	}
	return nil
}

// joined reports whether one coordinator has the devices of both daemons and the kubelet's pods. After a
// failed question, as during a restart of the kubelet, the coordinator asks for the pods after a pause, which
// grows with each failure.
func (p *Playground) joined(ctx context.Context) bool {
	answer, err := coordinator.AskStatus(ctx, p.RunDir())
	if err != nil {
		return false
	}
	connected := map[string]bool{}
	for _, r := range answer.GetResources() {
		connected[r.GetName()] = r.GetConnected()
	}
	return connected[p.gpus.Resource] && connected[VF] && answer.GetAlignment().GetAnnotations()
}

// ended returns the reason of the unexpected end of a daemon, or nil.
func (p *Playground) ended() error { return errors.Join(p.gpu.ended(), p.rdma.ended()) }

// restart restarts a daemon or the kubelet, and waits until the node is ready again.
func (p *Playground) restart(ctx context.Context, words []string) (string, error) {
	if len(words) != 1 {
		return "", errUsage
	}
	var err error
	switch words[0] {
	case "gpu":
		err = p.again(ctx, p.gpu, p.gpus.Resource)
	case "rdma":
		err = p.again(ctx, p.rdma, VF)
	case "kubelet":
		err = p.kubelet.Restart()
	default:
		return "", errUsage
	}
	if err != nil {
		return "", err
	}
	return "", p.ready(ctx)
}

// again stops a daemon, unless it has ended, and starts it again. It waits for the kubelet's notice of the
// end, because the devices of the old process do not mean that the new one is ready.
func (p *Playground) again(ctx context.Context, d *daemon, resource string) error {
	ctx, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	if d.ended() == nil {
		if err := d.stop(); err != nil {
			return err
		}
	}
	if err := p.kubelet.AwaitLoss(ctx, resource); err != nil {
		return err
	}
	return d.start()
}
