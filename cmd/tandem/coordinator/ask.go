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

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/topology"
)

// timeout is how long to wait for the plugins: they answer in milliseconds.
const timeout = 5 * time.Second

// AskStatus asks the plugins whose run folder this is, "" for one that is found, for all that they know. It
// waits 5 seconds at most.
func AskStatus(ctx context.Context, runDir string) (*api.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return coordination.Status(ctx, runFolder(runDir))
}

// Now is what the plugins know at this moment; nil where they do not answer.
func Now(ctx context.Context, runDir string) *Status {
	answer, err := AskStatus(ctx, runDir)
	if err != nil {
		return nil
	}
	s := NewStatus(answer)
	return &s
}

func runFolder(runDir string) string {
	if runDir != "" {
		return runDir
	}
	return coordination.FindRunDir(kubelet.DefaultDir)
}

// AskDecisions asks them what they decided for a pod and why; an empty namespace or container means any, and
// without a pod it is all that is known. It waits 5 seconds at most.
func AskDecisions(ctx context.Context, runDir, namespace, pod, container string) ([]Decision, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := coordination.Explain(ctx, runFolder(runDir), namespace, pod, container)
	if err != nil {
		return nil, err
	}
	return newDecisions(answer), nil
}

// Pods are the pods of which decisions are known, as namespace/pod, sorted.
func Pods(ctx context.Context, runDir string) ([]string, error) {
	decisions, err := AskDecisions(ctx, runDir, "", "", "")
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, d := range decisions {
		if names := strings.Split(d.Container, "/"); len(names) == 3 && names[0] != "" {
			pods = insert(pods, names[0]+"/"+names[1])
		}
	}
	return pods, nil
}

// Look asks the plugins and the kubelet how the node is, and looks at the machine for GPUs that no plugin
// offers. It fails where no plugin answers; a kubelet that does not is part of the answer.
func Look(ctx context.Context, runDir, kubeletDir, sysRoot string) (Status, error) {
	answer, err := AskStatus(ctx, runDir)
	if err != nil {
		if missing := Unoffered(os.DirFS(sysRoot)); missing != "" {
			err = fmt.Errorf("%w; %s", err, missing)
		}
		return Status{}, err
	}
	s := NewStatus(answer)
	s.AskKubelet(ctx, kubeletDir)
	if !s.OffersGPUs() {
		if missing := Unoffered(os.DirFS(sysRoot)); missing != "" {
			s.Notes = append(s.Notes, missing)
		}
	}
	return s, nil
}

// AskKubelet adds what the kubelet itself says: whether it is there, and which resources it goes by. It waits
// a second at most. The kubelet frees nothing because it is asked.
func (s *Status) AskKubelet(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	devices, state := askKubelet(ctx, dir)
	s.Kubelet = &state
	if devices == nil || s.isDRA() { // the kubelet allocates nothing then
		return
	}
	for i := range s.Resources {
		r := &s.Resources[i]
		registered := len(devices[r.Name]) > 0
		healthy := slices.ContainsFunc(r.Devices, func(d Device) bool {
			return d.State != unhealthy && d.State != allocatedUnhealthy
		})
		if registered || healthy { // it tells of healthy devices alone
			r.Registered = &registered
		}
	}
}

// OffersGPUs reports whether a plugin that is there offers GPUs.
func (s Status) OffersGPUs() bool {
	return slices.ContainsFunc(s.Resources, func(r Resource) bool {
		return r.Connected && r.Kind == string(device.GPU)
	})
}

// Unoffered says which GPUs of a machine wait for a plugin, and for what that may wait; "" for none, or where
// the machine cannot be read.
func Unoffered(sys fs.FS) string {
	tree, err := topology.Read(sys)
	if err != nil {
		return ""
	}
	awaited := gpu.AwaitedIn(tree, "")
	maker, found := gpu.MakerOf(awaited.Vendor)
	if !found {
		return ""
	}
	return fmt.Sprintf("%s, and no plugin offers them: tandem-gpu does not run here, or waits for %s", awaited,
		maker.Awaits)
}
