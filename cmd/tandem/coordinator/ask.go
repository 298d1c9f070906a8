// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// timeout limits a question to the plugins or the kubelet, which answer in milliseconds.
const timeout = 5 * time.Second

// Folders are the folders of a node in which its plugins and its kubelet have their sockets.
type Folders struct {
	RunDir     string // of the plugins; "" to find the folder
	KubeletDir string
	ProcRoot   string // in which the kubelet's process is found; "" for "/proc"
}

func (f *Folders) registerFlags(flags *pflag.FlagSet) {
	cli.RegisterRunDir(flags, &f.RunDir)
	flags.StringVar(&f.KubeletDir, "kubelet-dir", kubelet.DefaultDir, "root folder of the kubelet (--root-dir)")
}

// AskStatus returns the status of the plugins of a run directory; with "" AskStatus finds the directory. The
// time limit is 5 seconds.
func AskStatus(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return coordination.Status(ctx, runFolder(runDir))
}

func runFolder(runDir string) string {
	if runDir != "" {
		return runDir
	}
	return coordination.FindRunDir(kubelet.DefaultDir)
}

// askDecisions returns the decisions for a pod, all decisions for the empty question. The time limit is 5
// seconds.
func (f Folders) askDecisions(ctx context.Context, q PodQuestion) ([]Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := coordination.Explain(ctx, runFolder(f.RunDir), q.Namespace, q.Pod, q.Container)
	if err != nil {
		return nil, err
	}
	return newDecisions(answer), nil
}

// listPods returns the pods with known decisions as namespace/pod, sorted.
func (f Folders) listPods(ctx context.Context) ([]string, error) {
	decisions, err := f.askDecisions(ctx, PodQuestion{})
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, d := range decisions {
		if names := strings.Split(d.Container, "/"); len(names) == 3 && names[0] != "" {
			pods = insertSorted(pods, names[0]+"/"+names[1])
		}
	}
	return pods, nil
}

// readStatus returns the status by the plugins and the kubelet, with a note for GPUs of the machine that no
// plugin offers. Returns an error if no plugin answers; the status of a silent kubelet is part of the result.
func (f Folders) readStatus(ctx context.Context, sysRoot string) (Status, error) {
	answer, err := AskStatus(ctx, f.RunDir)
	if err != nil {
		if missing := DescribeUnoffered(os.DirFS(sysRoot), ""); missing != "" {
			err = fmt.Errorf("%w; %s", err, missing)
		}
		return Status{}, err
	}
	s := NewStatus(answer)
	s.AskKubelet(ctx, f.KubeletDir)
	s.noteMissing(os.DirFS(sysRoot))
	return s, nil
}

// AskKubelet adds the kubelet's state and the resources whose devices the kubelet has: another plugin may
// have registered the name of a resource. The time limit is a second. The question frees no device.
func (s *Status) AskKubelet(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	devices, state := askKubelet(ctx, dir)
	s.Kubelet = &state
	if devices == nil || s.isDRA() { // in mode DRA the kubelet allocates no device
		return
	}
	for i := range s.Resources {
		r := &s.Resources[i]
		has := devices[r.Name]
		registered := slices.ContainsFunc(r.Devices, func(d Device) bool { return slices.Contains(has, d.ID) })
		healthy := slices.ContainsFunc(r.Devices, Device.IsHealthy)
		if len(has) > 0 || healthy { // the kubelet lists only healthy devices
			r.Registered = &registered
		}
	}
}

// noteMissing adds notes about kinds of devices that no plugin offers. In the mode of DRA the driver's own
// notes have the reasons for unpublished GPUs.
func (s *Status) noteMissing(sys fs.FS) {
	if !s.isDRA() && !s.OffersGPUs() {
		if missing := DescribeUnoffered(sys, ""); missing != "" {
			s.Notes = append(s.Notes, missing)
		}
	}
	switch {
	case slices.ContainsFunc(s.deviceRows(), func(r row) bool { return r.kind == device.VF }):
	case s.isDRA():
		s.Notes = append(s.Notes, "no VF is published: the configuration (config.json) selects no VF of this node")
	case s.offersKind(device.VF):
		s.Notes = append(s.Notes, "the configuration of tandem-rdma (config.json) selects no VF of this node")
	default:
		s.Notes = append(s.Notes, noVFPlugin+"tandem-rdma does not run here, or its configuration selects no VF")
	}
}

// The beginnings of reasons in notes about devices that no plugin offers.
const (
	noGPUPlugin = "no plugin offers them: "
	noVFPlugin  = "no plugin offers VFs: "
)

// CutUnoffered cuts a note about devices of a kind that no plugin offers before its reasons.
func CutUnoffered(note string) (kind device.Kind, devices, reasons string, found bool) {
	for kind, plugin := range map[device.Kind]string{device.GPU: noGPUPlugin, device.VF: noVFPlugin} {
		if devices, reasons, found := strings.Cut(note, plugin); found {
			return kind, devices + plugin, reasons, true
		}
	}
	return "", "", "", false
}

// OffersGPUs reports whether a connected plugin offers GPUs.
func (s Status) OffersGPUs() bool { return s.offersKind(device.GPU) }

func (s Status) offersKind(kind device.Kind) bool {
	return slices.ContainsFunc(s.Resources, func(r Resource) bool {
		return r.Connected && r.Kind == string(kind)
	})
}

// DescribeUnoffered names the GPUs of a machine without a plugin, and the possible reasons. The vendor is
// --vendor of the plugin, "" if unknown. Returns "" without such GPUs, or if the machine is unreadable.
func DescribeUnoffered(sys fs.FS, vendor string) string {
	tree, err := topology.Read(sys)
	if err != nil {
		return ""
	}
	awaited := gpu.AwaitedIn(tree, "")
	maker, found := gpu.MakerOf(awaited.Vendor)
	if !found {
		return ""
	}
	if other := gpu.OtherVendor(tree, vendor); other != nil {
		return fmt.Sprintf("%s, and %s%v", awaited, noGPUPlugin, other)
	}
	reasons := fmt.Sprintf("tandem-gpu does not run here, has a gpu.vendor other than %s, or waits for %s",
		maker.Vendor, maker.Awaits)
	if maker.AwaitsDriver && awaited.Cards[0].Driver == maker.Driver {
		reasons = fmt.Sprintf("tandem-gpu does not run here, or has a gpu.vendor other than %s", maker.Vendor)
	}
	return fmt.Sprintf("%s, and %s%s", awaited, noGPUPlugin, reasons)
}

// unknownHolder is the holder of a device whose container is unknown.
const unknownHolder = "?"
