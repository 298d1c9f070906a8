// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-k8s/tandem/cmd/tandem/cli"
	"github.com/tandem-k8s/tandem/cmd/tandem/machine"
	"github.com/tandem-k8s/tandem/topology"
)

// ends returns pairs of the devices mlx5_0, mlx5_1 …, with AMD GPUs on the buses 0x11, 0x12 ….
func ends(number int) (list []trafficEnd) {
	for i := range number {
		gpu := topology.Address{Bus: uint8(0x11 + i)}
		list = append(list, trafficEnd{Facts: Facts{
			Pair: machine.Pair{GPU: gpu.String(), VF: topology.Address{Bus: uint8(0x31 + i)}.String()},
			RDMA: fmt.Sprintf("mlx5_%d", i), State: "4: ACTIVE", Rate: "200 Gb/sec (4X HDR)", RateGbps: 200,
		}, GPU: &GPU{Address: gpu, rocm: i}})
	}
	return list
}

// freePort returns the first of some free TCP ports, from which pairs count up. The kernel gives none of them
// to a client: its ports begin at 32768 (net.ipv4.ip_local_port_range).
func freePort(t *testing.T) int {
	t.Helper()
	const some = 5
	for first := 10000 + 10*(os.Getpid()%2000); first < 32000; first += 10 {
		free := 0
		for ; free < some; free++ {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+free))
			if err != nil {
				break
			}
			listener.Close()
		}
		if free == some {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func newPlan(t *testing.T, f fakes) *trafficPlan {
	t.Helper()
	return &trafficPlan{
		Seconds: 1, Port: freePort(t), Wait: 20 * time.Second, Memory: autoMemory, To: toNext, Min: 80,
		Environment: f.install(t), Progress: io.Discard,
	}
}

func run(t *testing.T, p *trafficPlan, list []trafficEnd) *TrafficReport {
	t.Helper()
	report, err := p.Run(t.Context(), list)
	ready(t, err)
	return report
}

func verdicts(r *TrafficReport) (list []string) {
	for _, p := range r.Pairs {
		list = append(list, fmt.Sprintf("%.0f Gb/s, %d %%, %d %% of the rate, %.2f µs, %s/%s: %s", p.Gbps, p.OfBest,
			p.OfRate, p.Latency, p.Memory, p.LatencyMemory, p.describeVerdict()))
	}
	return list
}

func TestRing(t *testing.T) {
	p := newPlan(t, fakes{Gbps: map[string]string{"mlx5_1 mlx5_2": "41.00", "mlx5_2 mlx5_0": "42.00"}})
	list := ends(3)
	list[2].PCIe = topology.PCIeLink{Speed: 32, MaxSpeed: 32, Width: 4, MaxWidth: 16}
	report := run(t, p, list)
	want := []string{
		"100 Gb/s, 100 %, 50 % of the rate, 2.25 µs, host/host: ok in host memory",
		"100 Gb/s, 100 %, 50 % of the rate, 2.25 µs, host/host: ok in host memory",
		"42 Gb/s, 42 %, 21 % of the rate, 2.25 µs, host/host: slow in host memory, PCIe width 4 of 16",
	}
	if diff := cmp.Diff(want, verdicts(report)); diff != "" {
		t.Error(diff)
	}
	wantFailures := []string{
		"pair 2: 42 % of the best pair, 42.00 of 100.00 Gb/s in host memory: PCIe width 4 of 16",
	}
	if diff := cmp.Diff(wantFailures, report.Failures); diff != "" {
		t.Error(diff)
	}
}

func TestCommandLines(t *testing.T) {
	gpu := &GPU{Address: topology.Address{Bus: 0x11}, nvidia: true}
	for _, test := range []struct {
		name, help string
		gpu        *GPU
		change     func(p *trafficPlan)
		want       string // behind -F
	}{
		{"host", "", gpu, nil, "-d mlx5_0 -i 1 -p 18515 -D 1 -s 1048576 -t 16 --report_gbits"},
		{"bytes", "", gpu, func(p *trafficPlan) { p.GiB = 2 },
			"-d mlx5_0 -i 1 -p 18515 -n 2048 -s 1048576 -t 16 --report_gbits"},
		{"CUDA", "--use_cuda=<id> --use_cuda_bus_id=<id>", gpu, nil,
			"-d mlx5_0 -i 1 -p 18515 --use_cuda_bus_id=0000:11:00.0 -D 1 -s 1048576 -t 16 --report_gbits"},
		{"CUDA, dmabuf", "--use_cuda_bus_id=<id> --use_cuda_dmabuf", gpu, nil,
			"-d mlx5_0 -i 1 -p 18515 --use_cuda_bus_id=0000:11:00.0 --use_cuda_dmabuf -D 1 -s 1048576 -t 16 " +
				"--report_gbits"},
		{"CUDA, dmabuf not wanted", "--use_cuda_bus_id=<id> --use_cuda_dmabuf", gpu,
			func(p *trafficPlan) { p.Memory = peerMemory },
			"-d mlx5_0 -i 1 -p 18515 --use_cuda_bus_id=0000:11:00.0 -D 1 -s 1048576 -t 16 --report_gbits"},
		{"ROCm, dmabuf", "--use_rocm=<id> --use_rocm_dmabuf", &GPU{Address: gpu.Address, rocm: 5}, nil,
			"-d mlx5_0 -i 1 -p 18515 --use_rocm=5 --use_rocm_dmabuf -D 1 -s 1048576 -t 16 --report_gbits"},
		{"GPU not wanted", "--use_rocm=<id>", &GPU{}, func(p *trafficPlan) { p.Memory = hostMemory },
			"-d mlx5_0 -i 1 -p 18515 -D 1 -s 1048576 -t 16 --report_gbits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &trafficPlan{Seconds: 1, Memory: autoMemory}
			if test.change != nil {
				test.change(p)
			}
			supported := program{options: readOptions(test.help)}
			e := ends(1)[0]
			e.GPU = test.gpu
			var err error
			if e.Memory, err = supported.memoryFor(p.Memory, test.gpu); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(p.bandwidthArguments(&e, 18515), " ")
			if diff := cmp.Diff("-F "+test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMemoryOfLatency(t *testing.T) {
	report := run(t, newPlan(t, fakes{Help: "--use_rocm=<id>", NoGPU: true, ROCmBus: "11"}), ends(1))
	want := []string{"100 Gb/s, 100 %, 50 % of the rate, 2.25 µs, gpu/host: ok"}
	if diff := cmp.Diff(want, verdicts(report)); diff != "" {
		t.Error(diff, report.Failures)
	}
}

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		name   string
		fakes  fakes
		ends   []trafficEnd
		change func(p *trafficPlan, list []trafficEnd)
		want   string
	}{
		{"no MR", fakes{Fail: map[string]string{"mlx5_0": "---\nCouldn't allocate MR\n failed to create mr"}},
			ends(1), nil,
			"Couldn't allocate MR; failed to create mr (the NIC cannot register the memory: the container's limit"},
		{"another GPU", fakes{Help: "--use_rocm=<id>", ROCmBus: "c1"}, ends(1), nil,
			"perftest used the GPU on PCI bus 0xc1 instead of 0000:11:00.0"},
		{"no ROCm", fakes{Help: "--use_rocm=<id>"}, ends(1), func(_ *trafficPlan, list []trafficEnd) {
			list[0].GPU.rocm = -1
		}, "pair 0: GPU 0000:11:00.0 is not in the KFD topology"},
		{"no RDMA device", fakes{}, ends(1), func(_ *trafficPlan, list []trafficEnd) {
			list[0].Err = "no RDMA device"
		},
			"pair 0: VF 0000:31:00.0: no RDMA device"},
		{"no bytes", fakes{Gbps: map[string]string{"mlx5_0 mlx5_0": "0.00"}}, ends(1), nil,
			"pair 0: run ib_write_bw: read the result: no message arrived"},
		{"rate", fakes{}, ends(1), func(p *trafficPlan, _ []trafficEnd) { p.MinRate = 90 },
			"pair 0: 50 % of the port's rate, 100.00 of 200.00 Gb/s in host memory: no reason in sysfs"},
		{"slow between fast pairs", fakes{Gbps: map[string]string{"mlx5_0 mlx5_1": "50"}}, ends(3), nil,
			"pair 0 to pair 1: 50 % of the best pair, 50.00 of 100.00 Gb/s, and both pairs are faster in"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlan(t, test.fakes)
			if test.change != nil {
				test.change(p, test.ends)
			}
			report := run(t, p, test.ends)
			if len(report.Failures) != 1 || !strings.Contains(report.Failures[0], test.want) {
				t.Errorf("failures %q, want %q", report.Failures, test.want)
			}
		})
	}
}

// TestBrokenPair: the neighbours of a broken pair have a run without that pair.
func TestBrokenPair(t *testing.T) {
	report := run(t, newPlan(t, fakes{Fail: map[string]string{"mlx5_1": "broken"}}), ends(3))
	var got []string
	for _, p := range report.Pairs {
		got = append(got, p.Verdict)
	}
	if diff := cmp.Diff([]string{ok, failed, ok}, got); diff != "" || len(report.Failures) != 2 {
		t.Error(diff, report.Failures)
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		ends   []trafficEnd
		change func(p *trafficPlan)
		want   string
	}{
		{"no VF", nil, nil, "the container has no VF"},
		{"no dmabuf", ends(1), func(p *trafficPlan) { p.Memory = dmaBuf },
			"pair 0: memory dmabuf: ib_write_bw has no option --use_rocm"},
		{"no port", ends(2), func(p *trafficPlan) { p.Port = 65535 }, "pair 1 has no TCP port"},
		{"no perftest", ends(1), func(*trafficPlan) { t.Setenv("PATH", t.TempDir()) }, "install perftest"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlan(t, fakes{})
			if test.change != nil {
				test.change(p)
			}
			_, err := p.Run(t.Context(), test.ends)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestTwoContainers: the client starts before the server; both have the bandwidth, the client the latency.
func TestTwoContainers(t *testing.T) {
	client := newPlan(t, fakes{Gbps: map[string]string{"mlx5_1 mlx5_1": "40.00"}})
	client.Client = "127.0.0.1"
	server := *client
	server.Client, server.Server = "", true
	var served *TrafficReport
	var err error
	var all sync.WaitGroup
	var start sync.Once
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	client.Progress = writer(func([]byte) {
		start.Do(func() {
			all.Go(func() {
				<-time.After(300 * time.Millisecond) // the first attempts of the client fail
				served, err = server.Run(ctx, ends(2))
			})
		})
	})
	called := run(t, client, ends(2))
	if len(called.Failures) != 1 {
		stop() // nobody asks the server again
	}
	all.Wait()
	ready(t, err)
	for _, side := range []struct {
		report  *TrafficReport
		latency string
	}{{called, "2.25 µs, host/host"}, {served, "0.00 µs, host/"}} {
		want := []string{
			"100 Gb/s, 100 %, 50 % of the rate, " + side.latency + ": ok in host memory",
			"40 Gb/s, 40 %, 20 % of the rate, " + side.latency + ": slow in host memory",
		}
		if diff := cmp.Diff(want, verdicts(side.report)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestEndOfContext: the end of the context ends the programs.
func TestEndOfContext(t *testing.T) {
	p := newPlan(t, fakes{Hang: true})
	ctx, stop := context.WithCancel(t.Context())
	p.Progress = writer(func([]byte) { time.AfterFunc(300*time.Millisecond, stop) })
	if _, err := p.Run(ctx, ends(3)); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
}

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

func TestTableOfReport(t *testing.T) {
	p := newPlan(t, fakes{Help: "--use_rocm=<id> --use_rocm_dmabuf", NoGPU: true})
	list := ends(3)
	list[1].GPU, list[1].Facts.GPU = nil, ""
	list[2].RateGbps = 0
	var out cli.Text
	run(t, p, list).writeTable(&out)
	want := `PAIR  GPU           VF            MEMORY        Gb/s    OF BEST  OF RATE      READ            VERDICT
0     0000:11:00.0  0000:31:00.0  GPU (dmabuf)  100.00  100 %    50 % of 200  2.25 µs (host)  ok
1     -             0000:32:00.0  host          100.00  100 %    50 % of 200  2.25 µs         ok
2     0000:13:00.0  0000:33:00.0  GPU (dmabuf)  100.00  100 %    -            2.25 µs (host)  ok

traffic to the next pair, 1 s for each pair; threshold 80 % of the best pair
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
