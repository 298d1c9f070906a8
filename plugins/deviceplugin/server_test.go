// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-k8s/tandem/plugins/container"
	"github.com/tandem-k8s/tandem/plugins/deviceplugin"
	"github.com/tandem-k8s/tandem/test/kubelettest"
)

// connect starts a server and returns it as the kubelet sees it.
func connect(t *testing.T, r deviceplugin.Resource) *kubelettest.Plugin {
	t.Helper()
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	start(t, dir, r)
	return kubelettest.Await(t, kubelet.Plugins)
}

func TestEveryStreamSeesTheNewestList(t *testing.T) {
	f := newFake("b", "a")
	plugin := connect(t, f)
	streams := []<-chan []*v1beta1.Device{plugin.Lists}
	for range 3 {
		lists, err := plugin.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, lists)
	}
	steps := []struct {
		publish []deviceplugin.Device
		want    string
	}{
		{nil, "a b"},
		{devices("b"), "b"},
		{devices("c", "b", "a"), "a b c"},
		{[]deviceplugin.Device{}, ""},
	}
	for i, step := range steps {
		if i > 0 {
			f.lists <- step.publish
		}
		for _, lists := range streams {
			if got := ids(kubelettest.Await(t, lists)); got != step.want {
				t.Errorf("step %d: devices %q, want %q", i, got, step.want)
			}
		}
	}
}

// TestListTooLong: the kubelet takes 4 MiB. A longer list is not sent, which the log says.
func TestListTooLong(t *testing.T) {
	dir := kubelettest.Dir(t)
	kubelet := kubelettest.Start(t, dir)
	many := newFake()
	<-many.lists
	var list []deviceplugin.Device
	for i := range 80_000 {
		list = append(list, deviceplugin.Device{
			ID: fmt.Sprintf("GPU-b1028956-cfa2-0990-bf4a-5da9abb51763::%06d", i), Healthy: true, Nodes: []int{0},
		})
	}
	many.lists <- list
	said := make(warnings, 16)
	startWith(t, deviceplugin.Options{KubeletDir: dir, Log: slog.New(slog.NewTextHandler(said, nil))},
		named{many, "example.com/many"})
	plugin := kubelettest.Await(t, kubelet.Plugins)
	if list, ok := <-plugin.Lists; ok {
		t.Errorf("%d devices were sent", len(list))
	}
	if line := kubelettest.Await(t, said); !strings.Contains(line, "devices=80000") ||
		!strings.Contains(line, "limit=4194304") {
		t.Error(line)
	}
	start(t, dir, newFake("a")) // another resource is as ever
	for plugin := kubelettest.Await(t, kubelet.Plugins); plugin.Request.GetResourceName() != resource; {
		plugin = kubelettest.Await(t, kubelet.Plugins)
	}
}

// warnings receives the lines of a log about a list that is too long, as far as there is room.
type warnings chan string

func (w warnings) Write(line []byte) (int, error) {
	if text := string(line); strings.Contains(text, "list of devices exceeds the kubelet's limit") {
		select {
		case w <- text:
		default:
		}
	}
	return len(line), nil
}

func TestTopologyInfo(t *testing.T) {
	f := newFake()
	<-f.lists
	f.lists <- []deviceplugin.Device{
		{ID: "none", Healthy: true},
		{ID: "one", Nodes: []int{0}},
		{ID: "two", Healthy: true, Nodes: []int{1, 3}},
	}
	got := kubelettest.Await(t, connect(t, f).Lists)
	want := []*v1beta1.Device{
		{ID: "none", Health: "Healthy"},
		{ID: "one", Health: "Unhealthy", Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 0}}}},
		{ID: "two", Health: "Healthy",
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: 1}, {ID: 3}}}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersOfPrefer(t *testing.T) {
	t.Attr("parity", "all/preferred-honours-must-include")
	t.Attr("parity", "all/preferred-never-errors")
	available := []string{"d", "a", "", "c", "b", "a"}
	for _, c := range []struct {
		name        string
		answer      []string
		mustInclude []string
		size        int
		want        string
	}{
		{"right", []string{"c", "a"}, nil, 2, "c a"},
		{"right with must-include last", []string{"c", "a"}, []string{"a"}, 2, "c a"},
		{"nothing", nil, nil, 2, "a b"},
		{"short", []string{"d"}, nil, 3, "d a b"},
		{"long", []string{"d", "c", "b"}, nil, 2, "d c"},
		{"foreign", []string{"x", "c", ""}, nil, 2, "c a"},
		{"twice", []string{"c", "c"}, nil, 2, "c a"},
		{"must-include missing", []string{"c", "d"}, []string{"b"}, 2, "b c"},
		{"must-include not available", []string{"a"}, []string{"z"}, 2, "z a"},
		{"must-include too many", nil, []string{"c", "b", "a"}, 2, "c b"},
		{"more than there are", []string{"a"}, nil, 9, "a b c d"},
		{"none asked", []string{"a"}, nil, 0, ""},
		{"negative", []string{"a"}, nil, -3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake("a", "b", "c", "d")
			f.prefer = func(_ context.Context, free, _ []string, _ int) []string {
				if slices.Contains(free, "") || len(free) != 4 {
					t.Errorf("asked with %q", free)
				}
				return c.answer
			}
			got, err := connect(t, preferring{f}).Prefer(t.Context(), available, c.mustInclude, c.size)
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// What a Preferrer chooses alone is the answer where nothing comes back from it, whatever keeps it; and where
// that fails too the IDs are in order.
func TestPreferHangsOrPanics(t *testing.T) {
	highest := func(available, mustInclude []string, size int) []string {
		free := slices.DeleteFunc(slices.Clone(available), func(id string) bool {
			return slices.Contains(mustInclude, id)
		})
		slices.SortFunc(free, func(a, b string) int { return strings.Compare(b, a) })
		return append(slices.Clone(mustInclude), free[:size-len(mustInclude)]...)
	}
	helpless := func([]string, []string, int) []string { panic("no idea either") }
	answer := func(<-chan struct{}) []string { return []string{"a", "c"} }
	failure := errors.New("no coordinator")
	for _, c := range []struct {
		name   string
		prefer func(hang <-chan struct{}) []string
		alone  func(available, mustInclude []string, size int) []string
		fails  error
		want   string
	}{
		{"hangs", func(hang <-chan struct{}) []string { <-hang; return []string{"a"} }, highest, nil, "b d"},
		{"panics", func(<-chan struct{}) []string { panic("no idea") }, highest, nil, "b d"},
		{"hangs, and helpless", func(hang <-chan struct{}) []string { <-hang; return nil }, helpless, nil, "b a"},
		{"panics, and helpless", func(<-chan struct{}) []string { panic("no idea") }, helpless, nil, "b a"},
		{"fails", answer, highest, failure, "b d"},
		{"fails, and helpless", answer, helpless, failure, "b a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, hang := newFake("a", "b", "c", "d"), make(chan struct{})
			f.prefer = func(context.Context, []string, []string, int) []string { return c.prefer(hang) }
			f.alone, f.failure = c.alone, c.fails
			plugin := connect(t, preferring{f})
			for range 3 { // where the first hangs, the second and third find it still at it
				got, err := plugin.Prefer(t.Context(), []string{"c", "b", "d", "a"}, []string{"b"}, 2)
				if err != nil || strings.Join(got, " ") != c.want {
					t.Errorf("got %v, %v, want %s", got, err, c.want)
				}
			}
			close(hang)
		})
	}
}

func TestPreferWithoutPreferrer(t *testing.T) {
	plugin := connect(t, newFake("a"))
	if plugin.Options.GetGetPreferredAllocationAvailable() {
		t.Error("a Resource without Prefer offers GetPreferredAllocation")
	}
	got, err := plugin.Prefer(t.Context(), []string{"c", "b"}, nil, 1)
	if err != nil || strings.Join(got, " ") != "b" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestAllocate(t *testing.T) {
	f := newFake("a")
	f.allocate = func(ids []string) (container.Edits, error) {
		switch ids[0] {
		case "nothing":
			return container.Edits{}, nil
		case "error":
			return container.Edits{}, status.Error(codes.FailedPrecondition, "held by default/other")
		case "panic":
			panic("no idea")
		}
		return container.Edits{Env: map[string]string{"IDS": strings.Join(ids, ",")}}, nil
	}
	plugin := connect(t, f)
	if got, err := plugin.Allocate(t.Context(), "b", "a", "b", ""); err != nil || got.GetEnvs()["IDS"] != "b,a" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := plugin.Allocate(t.Context(), "nothing"); err != nil || got == nil {
		t.Errorf("nil answer: %v, %v", got, err)
	}
	if _, err := plugin.Allocate(t.Context(), "error"); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "default/other") {
		t.Errorf("error: %v", err)
	}
	if _, err := plugin.Allocate(t.Context(), "panic"); status.Code(err) != codes.Internal ||
		errors.Is(err, context.Canceled) {
		t.Errorf("panic: %v", err)
	}
	answer, err := plugin.Client.Allocate(t.Context(),
		&v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
			{DevicesIds: []string{"a"}}, {DevicesIds: []string{"b"}},
		}})
	if err != nil || len(answer.GetContainerResponses()) != 2 {
		t.Errorf("two containers: %v, %v", answer, err)
	}
	if _, err := plugin.Client.PreStartContainer(t.Context(), &v1beta1.PreStartContainerRequest{
		DevicesIds: []string{"a"},
	}); err != nil {
		t.Errorf("PreStartContainer: %v", err)
	}
}
