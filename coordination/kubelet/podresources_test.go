// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	standin "github.com/tandem-k8s/tandem/test/podresources"
	"github.com/tandem-k8s/tandem/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limiter refuses the first calls, as the kubelet's does.
type limiter struct{ refuse int }

func (l *limiter) limit() error {
	if l.refuse > 0 {
		l.refuse--
		return status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return nil
}

// limited serves PodResources behind a limiter.
type limited struct {
	podresources.UnimplementedPodResourcesListerServer
	limiter
}

// limitedAfter refuses a number of calls.
func limitedAfter(refused int) *limited { return &limited{limiter: limiter{refused}} }

func (l *limited) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	if err := l.limit(); err != nil {
		return nil, err
	}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "team", Name: "train", Containers: []*podresources.ContainerResources{
			{Name: "worker", CpuIds: []int64{4, 5}, Devices: []*podresources.ContainerDevices{
				{ResourceName: "amd.com/gpu", DeviceIds: []string{"0000:11:00.0"}},
				{ResourceName: "amd.com/gpu", DeviceIds: []string{"0000:2f:00.0"}},
			}},
			{Name: "log"},
		}},
		{Namespace: "team", Name: "idle"},
	}}, nil
}

func (l *limited) Get(
	ctx context.Context, q *podresources.GetPodResourcesRequest,
) (*podresources.GetPodResourcesResponse, error) {
	all, err := l.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	if q.GetPodName() == "disabled" {
		return nil, errors.New("PodResources API Get method disabled")
	}
	for _, p := range all.GetPodResources() {
		if p.GetName() == q.GetPodName() {
			return &podresources.GetPodResourcesResponse{PodResources: p}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", q.GetPodName(), q.GetPodNamespace())
}

func (l *limited) GetAllocatableResources(
	context.Context, *podresources.AllocatableResourcesRequest,
) (*podresources.AllocatableResourcesResponse, error) {
	if err := l.limit(); err != nil {
		return nil, err
	}
	return &podresources.AllocatableResourcesResponse{CpuIds: []int64{2, 3, 4, 5}}, nil
}

// serve puts a server where a kubelet has its PodResources socket and returns the kubelet's folder.
func serve(t *testing.T, server podresources.PodResourcesListerServer) string {
	t.Helper()
	dir := shortDir(t)
	standin.Serve(t, dir, server)
	return dir
}

// shortDir returns a new folder with a path short enough for sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// connect returns a client of a kubelet until the test ends.
func connect(t *testing.T, kubeletDir string) *PodResources {
	t.Helper()
	client, err := NewPodResources(kubeletDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// A kubelet that starts answers as soon as it serves, also where it was asked in vain just before.
func TestRightAfterAStart(t *testing.T) {
	t.Parallel()
	questions := map[string]func(context.Context, *PodResources) error{
		"List": func(ctx context.Context, p *PodResources) error { _, err := p.List(ctx); return err },
		"Get": func(ctx context.Context, p *PodResources) error {
			_, err := p.Get(ctx, Pod{"team", "train"})
			return err
		},
		"AllocatableCPUs": func(ctx context.Context, p *PodResources) error {
			_, err := p.AllocatableCPUs(ctx)
			return err
		},
	}
	for name, ask := range questions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			client := connect(t, dir)
			if err := ask(t.Context(), client); status.Code(errors.Unwrap(err)) != codes.Unavailable {
				t.Fatal(err)
			}
			standin.Serve(t, dir, &limited{})
			if err := ask(t.Context(), client); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestListAsksAgainWhenItIsLimited(t *testing.T) {
	t.Parallel()
	got, err := connect(t, serve(t, limitedAfter(3))).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	train, idle := Pod{"team", "train"}, Pod{"team", "idle"}
	want := View{
		Pods: []Pod{train, idle},
		Containers: map[Container]Devices{
			{Pod: train, Name: "worker"}: {"amd.com/gpu": {"0000:11:00.0", "0000:2f:00.0"}},
			{Pod: train, Name: "log"}:    {},
		},
		Exclusive: topology.CPUSet{4: true, 5: true},
		Life:      got.Life,
	}
	if got.Life == "" {
		t.Error("nothing tells this kubelet from the next one")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("view (-want +got):\n%s", diff)
	}
	if name := (Container{Pod: train, Name: "worker"}).String(); name != "team/train/worker" ||
		!slices.Contains(got.Pods, idle) {
		t.Errorf("container is called %s", name)
	}
}

func TestAllocatableCPUs(t *testing.T) {
	t.Parallel()
	client := connect(t, serve(t, limitedAfter(2)))
	if got, err := client.AllocatableCPUs(t.Context()); err != nil || got.String() != "2-5" {
		t.Errorf("%v, %v", got, err)
	}
	other := connect(t, serve(t, podresources.UnimplementedPodResourcesListerServer{}))
	if got, err := other.AllocatableCPUs(t.Context()); err == nil {
		t.Errorf("%v of a kubelet that does not tell", got)
	}
}

func TestListEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := connect(t, serve(t, limitedAfter(1<<20))).List(ctx); status.Code(err) == codes.OK {
		t.Errorf("limited for ever: %v", err)
	}
	if _, err := connect(t, t.TempDir()).List(ctx); err == nil {
		t.Error("no kubelet, no error")
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	client := connect(t, serve(t, limitedAfter(2)))
	view, err := client.Get(t.Context(), Pod{"team", "train"})
	holder, id, held := view.HolderOf("amd.com/gpu", []string{"0000:2f:00.0", "0000:46:00.0"})
	if err != nil || !held || id != "0000:2f:00.0" || holder.String() != "team/train/worker" {
		t.Errorf("train: %v, %v", view, err)
	}
	if view, err := client.Get(t.Context(), Pod{"team", "gone"}); err != nil || len(view.Pods) > 0 {
		t.Errorf("a pod that is gone: %v, %v", view, err)
	}
	if view, err := client.Get(t.Context(), Pod{"team", "disabled"}); err == nil {
		t.Errorf("a kubelet without Get: %v", view)
	}
}
