// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// askStatus returns the status of the plugins alone.
func (f Folders) askStatus(ctx context.Context) (Status, error) {
	answer, err := AskStatus(ctx, f.RunDir)
	if err != nil {
		return Status{}, err
	}
	return NewStatus(answer), nil
}

func runFolder(runDir string) string {
	if runDir != "" {
		return runDir
	}
	return coordination.FindRunDir(kubelet.DefaultDir)
}

// readStatus returns the status by the plugins and the kubelet, with a note for GPUs of the machine that no
// plugin offers. Returns an error if no plugin answers; the status of a silent kubelet is part of the result.
func (f Folders) readStatus(ctx context.Context, sysRoot string) (Status, error) {
	s, err := f.askStatus(ctx)
	if err != nil {
		if missing := DescribeUnoffered(os.DirFS(sysRoot), ""); missing != "" {
			err = fmt.Errorf("%w; %s", err, missing)
		}
		return s, err
	}
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

// kubeletTimeout limits a question to the kubelet, which answers in milliseconds; its limiter lets no client
// wait longer.
const kubeletTimeout = time.Second

// Kubelet is the state of the kubelet, by its answers.
type Kubelet struct {
	State string `json:"state"`         // "up", "down" or "unknown"
	Why   string `json:"why,omitempty"` // a sentence, if not up
}

// IsDown reports whether the kubelet does not answer; nil means that the state is unknown.
func (k *Kubelet) IsDown() bool { return k != nil && k.State == kubeletDown }

// The states of a kubelet.
const (
	kubeletUp      = "up"
	kubeletDown    = "down"
	kubeletUnknown = "unknown" // the socket is not visible here
)

// askKubelet returns the allocatable devices of the kubelet, nil without an answer, and the state.
func askKubelet(ctx context.Context, dir string) (kubelet.Devices, Kubelet) {
	socket := kubelet.PodResourcesSocket(dir)
	if state := reachSocket(ctx, socket); state.State != kubeletUp {
		return nil, state
	}
	pods, err := kubelet.NewPodResources(dir)
	if err != nil {
		return nil, Kubelet{kubeletUnknown, err.Error()}
	}
	defer pods.Close()
	devices, err := pods.Allocatable(ctx)
	switch code := status.Code(err); {
	case err == nil:
		return devices, Kubelet{State: kubeletUp}
	case code == codes.Unavailable, code == codes.DeadlineExceeded:
		return nil, Kubelet{kubeletDown, "it does not answer at " + socket}
	default: // a kubelet without this call
		return nil, Kubelet{State: kubeletUp}
	}
}

// reachSocket returns the state of the kubelet by its socket: up if a process listens.
func reachSocket(ctx context.Context, socket string) Kubelet {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close() // nothing was sent
		return Kubelet{State: kubeletUp}
	}
	_, folder := os.Stat(filepath.Dir(socket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Kubelet{kubeletUnknown, "no right to ask at " + socket}
	case errors.Is(err, fs.ErrNotExist) && folder != nil: // maybe the container lacks the mount
		return Kubelet{kubeletUnknown, "there is no folder " + filepath.Dir(socket)}
	default:
		return Kubelet{kubeletDown, "nobody listens at " + socket}
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
	case slices.ContainsFunc(s.deviceRows(), func(r deviceRow) bool { return r.kind == device.VF }):
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
	kind, plugin := device.GPU, noGPUPlugin
	if strings.HasPrefix(note, noVFPlugin) {
		kind, plugin = device.VF, noVFPlugin
	}
	devices, reasons, found = strings.Cut(note, plugin)
	return kind, devices + plugin, reasons, found
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
