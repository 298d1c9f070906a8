// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"errors"
	"flag"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/test/scale"
)

var (
	load     = flag.Duration("load", time.Second, "duration of TestLoad")
	restarts = flag.Int("restarts", 200, "restarts of TestRestarts")
)

const (
	loadClients     = 63   // besides the hostile client
	loadConnections = 21   // of these clients: a plugin has one for all its resources
	loadRate        = 1000 // questions a second, of all clients together
	loadHeap        = 128 << 20
)

// TestLoad: 1,000 questions a second of 63 clients are answered while another client floods the server, and
// the memory stays bounded. On a busy machine questions wait for their turn, and each gets an answer.
func TestLoad(t *testing.T) {
	p := newPairOfNodes(t)
	clients := make([]api.CoordinationClient, loadConnections)
	for i := range clients {
		clients[i] = p.connect(t)
	}
	for range 2 * decisions { // until the history is full
		p.ask(t, clients[0], time.Now())
	}
	before := measureUsage(t)
	flood := child(t, "flood", p.config.RunDir)
	stdin, err := flood.StdinPipe() // ends with this process
	if err := errors.Join(err, flood.Start()); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	due := make(chan time.Time, loadRate) // a second's questions may wait
	var all latencies
	began, used := time.Now(), cpuTime(t)
	for i := range loadClients {
		asking.Go(func() {
			for at := range due {
				all.add(p.ask(t, clients[i%loadConnections], at))
			}
		})
	}
	highest := pace(*load, due)
	asking.Wait()
	took, own := time.Since(began), cpuTime(t)-used
	if err := errors.Join(stdin.Close(), flood.Wait()); err != nil {
		t.Error(err)
	}
	all.report(t, took)
	hostile := flood.ProcessState.UserTime() + flood.ProcessState.SystemTime()
	t.Logf("CPU time of the server and its %d clients: %.2f cores; of the hostile client: %.2f cores",
		loadClients, own.Seconds()/took.Seconds(), hostile.Seconds()/took.Seconds())
	if t.Logf("peak of the heap: %d MiB", highest>>20); highest > loadHeap {
		t.Errorf("the heap had %d bytes, more than %d", highest, loadHeap)
	}
	p.await(t)
	before.compare(t)
}

// connect returns a connected client, which keeps its connection as the plugins do.
func (p *pairOfNodes) connect(t *testing.T) api.CoordinationClient {
	t.Helper()
	conn, err := dialRunDir(p.config.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := api.NewCoordinationClient(conn)
	if _, err := client.Status(t.Context(), &api.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	return client
}

// pace makes a question due every 1/loadRate of a second, closes the channel, and returns the peak of the
// heap in bytes. A timer that fires late makes several questions due; all of them keep their own times.
func pace(during time.Duration, due chan<- time.Time) (highest uint64) {
	defer close(due)
	tick := time.NewTicker(time.Second / loadRate)
	defer tick.Stop()
	began := time.Now()
	for n := range int(during.Seconds() * loadRate) {
		if n%loadRate == 0 {
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			highest = max(highest, memory.HeapAlloc)
		}
		at := began.Add(time.Duration(n) * time.Second / loadRate)
		for time.Now().Before(at) {
			<-tick.C
		}
		due <- at
	}
	return highest
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// ask puts a question for two GPUs, and returns the time from the moment when it was due until the answer.
func (p *pairOfNodes) ask(t *testing.T, client api.CoordinationClient, due time.Time) time.Duration {
	t.Helper()
	question := &api.PreferRequest{Resource: gpus, Available: p.ids[gpus], Size: 2}
	answer, err := client.Prefer(t.Context(), question)
	took := time.Since(due)
	ids := answer.GetDevices()
	wrong := slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(p.ids[gpus], id) })
	if err != nil || wrong || len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("2 of %v: %v, %v", p.ids[gpus], ids, err)
	}
	return took
}

// latencies are the durations of questions.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) add(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, took)
}

func (l *latencies) report(t *testing.T, during time.Duration) {
	t.Helper()
	if len(l.all) == 0 {
		t.Fatal("no question was put")
	}
	slices.Sort(l.all)
	at := func(percent int) time.Duration { return l.all[min(len(l.all)-1, len(l.all)*percent/100)] }
	t.Logf("%d questions in %s, %.0f a second: half within %s, 99 %% within %s, all within %s", len(l.all),
		during, float64(len(l.all))/during.Seconds(), at(50), at(99), at(100))
}

// TestRestarts: two plugins restart in turn, so that each restart is a takeover as well. Devices of a
// container stay held, and neither goroutines, descriptors nor memory grow.
func TestRestarts(t *testing.T) {
	p := newPairOfNodes(t)
	p.admit(t)
	want := held(p.await(t).GetResources())
	if len(want) != 4 {
		t.Fatalf("held: %v", want)
	}
	const warmUp = 20
	var before usage
	for n := range warmUp + scale.Rounds(*restarts) {
		if n == warmUp {
			before = measureUsage(t)
		}
		name := []string{gpus, vfs}[n%2]
		p.stops[name]()
		p.start(t, name)
		if got := held(p.await(t).GetResources()); !slices.Equal(got, want) {
			t.Fatalf("restart %d: %v are held, want %v", n, got, want)
		}
	}
	before.compare(t)
}

// held returns the devices that containers hold.
func held(resources []*api.Resource) (ids []string) {
	for _, r := range resources {
		for _, d := range r.GetDevices() {
			if d.GetAllocated() {
				ids = append(ids, d.GetDevice().GetId())
			}
		}
	}
	return ids
}
