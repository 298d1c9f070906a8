package plugins_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/tandem-k8s/tandem/plugins/deviceplugin/kubelettest"
	"github.com/tandem-k8s/tandem/test/machines"
)

var rounds = flag.Int("rounds", 300, "admissions of TestDaemonsStayFlat, of two questions each")

const (
	gpus = "amd.com/gpu"
	vfs  = "nvidia.com/rdma"
)

// node is a kubelet with both daemons, each a process of its own, on a recorded machine.
type node struct {
	dir     string // the kubelet's
	kubelet *kubelettest.Kubelet
	plugins map[string]*kubelettest.Plugin
	ids     map[string][]string
	daemons []*exec.Cmd
	pods    pods
}

// pods is the kubelet's PodResources: 30 pods without devices, and the one that was admitted last.
type pods struct {
	podresources.UnimplementedPodResourcesListerServer
	mu   sync.Mutex
	last *podresources.PodResources
}

func (p *pods) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{p.last}}
	for i := range 30 {
		answer.PodResources = append(answer.PodResources, &podresources.PodResources{
			Name: fmt.Sprint("other-", i), Namespace: "team", Containers: []*podresources.ContainerResources{{Name: "c"}},
		})
	}
	return answer, nil
}

// Get knows the last pod alone.
func (p *pods) Get(_ context.Context, q *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.GetPodName() != p.last.GetName() {
		return nil, fmt.Errorf("pod %s in namespace %s not found", q.GetPodName(), q.GetPodNamespace())
	}
	return &podresources.GetPodResourcesResponse{PodResources: p.last}, nil
}

// begin replaces the last pod by a new one.
func (p *pods) begin(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = &podresources.PodResources{Name: name, Namespace: "team", Containers: []*podresources.ContainerResources{{Name: "worker"}}}
}

func (p *pods) give(resource string, ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.last.GetContainers()[0]
	devices := append(slices.Clone(before.GetDevices()), &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids})
	p.last = &podresources.PodResources{Name: p.last.GetName(), Namespace: "team", Containers: []*podresources.ContainerResources{{Name: "worker", Devices: devices}}}
}

// newNode builds the daemons and starts everything, with flags that both have.
func newNode(t testing.TB, more ...string) *node {
	t.Helper()
	dir := kubelettest.Dir(t)
	machine, err := machines.Load("oci-mi300x-derived", 4)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	sys, config := filepath.Join(root, "sys"), filepath.Join(root, "config.json")
	const resources = `{"resourceList": [{"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": true}}]}`
	record := filepath.Join(kubelettest.Plugins(dir), "kubelet_internal_checkpoint")
	if err := errors.Join(machine.Layout(sys), os.Mkdir(filepath.Join(root, "dev"), 0o700), os.WriteFile(config, []byte(resources), 0o600),
		os.WriteFile(record, []byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":0}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	n := &node{plugins: map[string]*kubelettest.Plugin{}, ids: map[string][]string{}}
	n.pods.begin("none")
	servePods(t, dir, &n.pods)
	n.kubelet = kubelettest.Start(t, dir)
	flags := append(more, "--sysfs-root="+sys, "--dev-root="+filepath.Join(root, "dev"), "--kubelet-dir="+dir, "--run-dir="+filepath.Join(dir, "run"))
	n.dir = dir
	n.start(t, root, "tandem-gpu", flags...)
	n.start(t, root, "tandem-rdma", append(flags, "--config-file="+config, "--resource-prefix=nvidia.com", "--devinfo-dir="+filepath.Join(root, "devinfo"))...)
	for range 2 {
		plugin := kubelettest.Await(t, n.kubelet.Plugins)
		name := plugin.Request.GetResourceName()
		n.plugins[name] = plugin
		for _, d := range kubelettest.Await(t, plugin.Lists) {
			n.ids[name] = append(n.ids[name], d.GetID())
		}
	}
	return n
}

func servePods(t testing.TB, dir string, p *pods) {
	t.Helper()
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
}

// start builds and starts one daemon, which logs to a file.
func (n *node) start(t testing.TB, root, name string, flags ...string) {
	t.Helper()
	binary := filepath.Join(root, name)
	build := exec.Command("go", "build", "-o", binary, "../cmd/"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, output)
	}
	log, err := os.Create(binary + ".log")
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command(binary, flags...)
	daemon.Stderr = log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	n.daemons = append(n.daemons, daemon)
	t.Cleanup(func() {
		_ = daemon.Process.Signal(os.Interrupt)
		if err := daemon.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		log.Close()
	})
}

// admit gives a new pod a pair, in either order, and returns how long the two questions took.
func (n *node) admit(t testing.TB, round int) [2]time.Duration {
	t.Helper()
	n.pods.begin(fmt.Sprint("pod-", round))
	order := []string{gpus, vfs}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	var took [2]time.Duration
	for i, name := range order {
		began := time.Now()
		chosen, err := n.plugins[name].Prefer(t.Context(), n.ids[name], nil, 2)
		took[i] = time.Since(began)
		if err != nil || len(chosen) != 2 {
			t.Fatalf("prefer 2 of %s: %v, %v", name, chosen, err)
		}
		if _, err := n.plugins[name].Allocate(t.Context(), chosen...); err != nil {
			t.Fatal(err)
		}
		n.pods.give(name, chosen)
	}
	return took
}

// process is what a process takes of its node.
type process struct{ descriptors, threads, resident int } // resident in KiB

func (n *node) measure(t testing.TB) []process {
	t.Helper()
	var all []process
	for _, daemon := range n.daemons {
		proc := fmt.Sprint("/proc/", daemon.Process.Pid)
		descriptors, err := os.ReadDir(proc + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(proc + "/status")
		if err != nil {
			t.Fatal(err)
		}
		p := process{descriptors: len(descriptors)}
		for line := range strings.Lines(string(status)) {
			fields := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "Threads:"):
				p.threads, _ = strconv.Atoi(fields[1])
			case strings.HasPrefix(line, "VmRSS:"):
				p.resident, _ = strconv.Atoi(fields[1])
			}
		}
		all = append(all, p)
	}
	return all
}

// maxResident is what a daemon may keep in memory, in KiB; more than two thirds of it is its program, which the kernel can drop.
const maxResident = 44 << 10

// A daemon takes no more after many admissions than after a few.
func TestDaemonsStayFlat(t *testing.T) {
	n := newNode(t)
	warm := max(*rounds/10, 300) // by then the log of decisions is full
	for round := range warm {
		n.admit(t, round)
	}
	before := n.measure(t)
	for round := range *rounds {
		n.admit(t, warm+round)
	}
	for i, now := range n.measure(t) {
		t.Logf("%s after %d admissions: %d descriptors, %d threads, %.1f MiB resident; %d, %d, %.1f after %d", filepath.Base(n.daemons[i].Path), *rounds,
			now.descriptors, now.threads, float64(now.resident)/1024, before[i].descriptors, before[i].threads, float64(before[i].resident)/1024, warm)
		if now.descriptors > before[i].descriptors+2 || now.threads > before[i].threads+5 || now.resident > maxResident || now.resident > before[i].resident*5/4 {
			t.Errorf("%s grows from %+v to %+v", n.daemons[i].Path, before[i], now)
		}
	}
}

// BenchmarkRound measures a GetPreferredAllocation from the kubelet's call to the answer: through the plugin's socket, the
// coordination socket and PodResources, next to a plugin that answers at once.
func BenchmarkRound(b *testing.B) {
	n := newNode(b)
	n.admit(b, 1)
	b.Run("by=tandem", func(b *testing.B) {
		var took []time.Duration
		for round := 0; b.Loop(); round++ {
			both := n.admit(b, round)
			took = append(took, both[0], both[1])
		}
		report(b, took)
	})
	b.Run("by=at-once", func(b *testing.B) {
		client := atOnce(b)
		var took []time.Duration
		for b.Loop() {
			for _, name := range []string{gpus, vfs} {
				began := time.Now()
				if chosen, err := client.Prefer(b.Context(), n.ids[name], nil, 2); err != nil || len(chosen) != 2 {
					b.Fatal(chosen, err)
				}
				took = append(took, time.Since(began))
			}
		}
		report(b, took)
	})
}

// report gives the median and the 99th percentile of one question, in nanoseconds.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// instant prefers the first devices that it is offered.
type instant struct {
	v1beta1.UnimplementedDevicePluginServer
}

func (instant) GetPreferredAllocation(_ context.Context, q *v1beta1.PreferredAllocationRequest) (*v1beta1.PreferredAllocationResponse, error) {
	c := q.GetContainerRequests()[0]
	return &v1beta1.PreferredAllocationResponse{ContainerResponses: []*v1beta1.ContainerPreferredAllocationResponse{
		{DeviceIDs: c.GetAvailableDeviceIDs()[:c.GetAllocationSize()]},
	}}, nil
}

func (instant) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (instant) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	<-stream.Context().Done()
	return nil
}

// atOnce registers a plugin that answers at once with a kubelet.
func atOnce(b *testing.B) *kubelettest.Plugin {
	b.Helper()
	dir := kubelettest.Dir(b)
	kubelet := kubelettest.Start(b, dir)
	listener, err := net.Listen("unix", filepath.Join(kubelettest.Plugins(dir), "instant.sock"))
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, instant{})
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(server.Stop)
	if _, err := kubelet.Register(b.Context(), &v1beta1.RegisterRequest{Endpoint: "instant.sock", ResourceName: "example.com/instant"}); err != nil {
		b.Fatal(err)
	}
	return kubelettest.Await(b, kubelet.Plugins)
}
