// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	standin "github.com/tandem-k8s/tandem/test/podresources"
)

// goesBy is a kubelet that has a device of amd.com/gpu.
type goesBy struct {
	podresources.UnimplementedPodResourcesListerServer
	device string
}

func (g goesBy) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "amd.com/gpu", DeviceIds: []string{g.device}},
	}}, nil
}

// TestAskKubelet: a resource is registered if the kubelet has its devices. If another plugin has registered
// the name later, the kubelet has that plugin's devices, and gives those to pods.
func TestAskKubelet(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for name, c := range map[string]struct {
		kubelet func(t *testing.T, dir string)
		state   string
		gpu, vf *bool // registered
	}{
		"no folder": {func(*testing.T, string) {}, kubeletUnknown, nil, nil},
		"no socket": {func(t *testing.T, dir string) { folder(t, dir) }, kubeletDown, nil, nil},
		"dead": {func(t *testing.T, dir string) {
			listener := listen(t, dir)
			listener.SetUnlinkOnClose(false)
			listener.Close()
		}, kubeletDown, nil, nil},
		"silent": {func(t *testing.T, dir string) { listen(t, dir) }, kubeletDown, nil, nil},
		"up": {func(t *testing.T, dir string) {
			standin.Serve(t, dir, goesBy{device: "a"})
		}, kubeletUp, &yes, &no},
		"up, with another plugin": {func(t *testing.T, dir string) {
			standin.Serve(t, dir, goesBy{device: "other"})
		}, kubeletUp, &no, &no},
		"of before": {func(t *testing.T, dir string) {
			standin.Serve(t, dir, podresources.UnimplementedPodResourcesListerServer{})
		}, kubeletUp, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c.kubelet(t, dir)
			s := Status{Resources: []Resource{
				{Name: "amd.com/gpu", Devices: []Device{{ID: "a", State: "free"}}},
				{Name: "tandem.dev/vf", Devices: []Device{{State: "unhealthy"}, {State: "allocated"}}},
				{Name: "tandem.dev/ill", Devices: []Device{{State: "unhealthy"}}}, // the kubelet would not tell
			}}
			s.AskKubelet(t.Context(), dir)
			var got []*bool
			for _, r := range s.Resources {
				got = append(got, r.Registered)
			}
			if diff := cmp.Diff([]*bool{c.gpu, c.vf, nil}, got); diff != "" || s.Kubelet.State != c.state ||
				(s.Kubelet.Why == "") != (c.state == kubeletUp) {
				t.Errorf("%+v, registered (-want +got):\n%s", s.Kubelet, diff)
			}
		})
	}
}

// folder makes the folder of a kubelet's PodResources, and returns the socket.
func folder(t *testing.T, dir string) (socket string) {
	t.Helper()
	socket = kubelet.PodResourcesSocket(dir)
	ready(t, os.MkdirAll(filepath.Dir(socket), 0o755))
	return socket
}

func listen(t *testing.T, dir string) *net.UnixListener {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: folder(t, dir), Net: "unix"})
	ready(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

// newText returns a text of one line.
func newText(line string) *cli.Text {
	var text cli.Text
	text.Line(line)
	return &text
}

// An unchanged result is shown once; a failure is reported once, and the next result is shown even if
// unchanged.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := strings.Fields("a a b b !one !one !two b b a")
		const want = "a\nb\nb\na\n"
		start, asked := time.Now(), 0
		ctx, cancel := context.WithCancel(t.Context())
		look := func(context.Context) (*cli.Text, error) {
			if asked == len(answers) {
				cancel()
				return nil, errors.New("cancelled")
			}
			asked++
			if text, failed := strings.CutPrefix(answers[asked-1], "!"); failed {
				return nil, errors.New(text)
			}
			return newText(answers[asked-1]), nil
		}
		var out, problems bytes.Buffer
		if err := watchChanges(ctx, &problems, look, func(shown *cli.Text) error {
			out.WriteString(shown.String())
			return nil
		}); err != nil {
			t.Error(err)
		}
		if out.String() != want || problems.String() != "not up to date: one\nnot up to date: two\n" {
			t.Errorf("shown %q, want %q; told %q", out.String(), want, problems.String())
		}
		if took := time.Since(start); took != time.Duration(len(answers))*watchPause {
			t.Errorf("%d questions took %s", len(answers)+1, took)
		}
	})
}

// A failure of the first look, or of a write, ends the watch.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	away, full := errors.New("nobody answers"), errors.New("no space left")
	look := func(context.Context) (*cli.Text, error) { return newText("a"), nil }
	fails := func(context.Context) (*cli.Text, error) { return nil, away }
	if err := watchChanges(t.Context(), nil, fails, nil); !errors.Is(err, away) {
		t.Errorf("the first question fails: %v", err)
	}
	show := func(*cli.Text) error { return full }
	if err := watchChanges(t.Context(), nil, look, show); !errors.Is(err, full) {
		t.Errorf("nothing can be written: %v", err)
	}
}
