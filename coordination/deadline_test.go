// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tandem-k8s/tandem/coordination/api"
	"github.com/tandem-k8s/tandem/coordination/device"
)

// answerLimit is within what the kubelet gets its answer, whatever is broken.
const answerLimit = 100 * time.Millisecond

var threeGPUs = device.Announcement{
	Devices: []device.Device{{ID: "gpu0", Healthy: true}, {ID: "a", Healthy: true}, {ID: "b", Healthy: true}},
}

// answers asks a member a few times and returns the shortest time. Every answer has to be usable.
func answers(t *testing.T, member *Member) time.Duration {
	t.Helper()
	return shortest(func() {
		if got := choose(t, member, []string{"b", "a", "gpu0"}, nil, 2); len(got) != 2 ||
			got[0] == got[1] {
			t.Errorf("prefer 2 of 3: %v", got)
		}
	})
}

// shortest is the shortest time of a few times, and of some more while it is above the limit: on a busy
// machine others are longer, for other reasons.
func shortest(do func()) time.Duration {
	const few, most = 5, 30
	var took []time.Duration
	for len(took) < few || len(took) < most && slices.Min(took) > answerLimit {
		began := time.Now()
		do()
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}

// togetherAtTimes makes sure that the coordinator answered too, and not only each plugin for itself. How many
// questions end early depends on how busy the machine is.
func togetherAtTimes(t *testing.T, log *lockedBuffer) {
	t.Helper()
	together, alone := strings.Count(log.String(), "source=coordinator"),
		strings.Count(log.String(), "source=local")
	t.Logf("%d answers of the coordinator, %d without it", together, alone)
	if together == 0 {
		t.Error("no answer of the coordinator")
	}
}

// A peer that holds the lock and misbehaves on the socket costs quality, not time.
func TestAnswersBesideABadServer(t *testing.T) {
	for name, behave := range map[string]func(net.Conn){
		"accepts and is silent": func(net.Conn) {},
		"reads and is silent":   func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"hangs up":              func(c net.Conn) { c.Close() },
		"answers garbage":       func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("garbage ", 1000))) },
		"trickles": func(c net.Conn) {
			// an empty HTTP/2 SETTINGS frame, byte by byte, again and again
			settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				<-tick.C
				if _, err := c.Write(settings[i%len(settings):][:1]); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, listener := heldDir(t)
			var all sync.WaitGroup
			var mu sync.Mutex
			var open []net.Conn
			all.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					mu.Lock()
					open = append(open, conn)
					mu.Unlock()
					all.Go(func() { behave(conn) })
				}
			})
			node, stop := start(t, dir)
			member := node.Member(gpus, device.GPU)
			member.Publish(threeGPUs)
			if took := answers(t, member); took > answerLimit {
				t.Errorf("answered after %s", took)
			}
			took := shortest(func() {
				allocate(t, member, "gpu0")
			})
			if took > answerLimit {
				t.Errorf("allocated after %s", took)
			}
			stop()
			listener.Close()
			mu.Lock()
			for _, conn := range open {
				conn.Close()
			}
			mu.Unlock()
			all.Wait()
		})
	}
}

// A plugin that is stopped keeps the lock; the other one answers alone, and together with it once it goes on.
func TestAnswersBesideAStoppedProcess(t *testing.T) {
	t.Attr("parity", "all/preferred-deadline")
	dir := filepath.Join(shortDir(t), "run")
	server := child(t, "server", dir)
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, dir, func(s *api.StatusResponse) bool { return s.GetPid() == int64(server.Process.Pid) })
	log, logger := newLog()
	_, member, _ := join(t, Config{RunDir: dir, Log: logger}, gpus, threeGPUs, gpus)
	if answers(t, member); !strings.Contains(log.String(), "source=coordinator") {
		t.Errorf("the server does not answer: %s", log.String())
	}
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(log.String(), "source=local") { // until the signal has arrived
		answers(t, member)
	}
	if took := answers(t, member); took > answerLimit {
		t.Errorf("answered after %s", took)
	}
	if err := server.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	before := strings.Count(log.String(), "source=coordinator")
	for strings.Count(log.String(), "source=coordinator") == before {
		answers(t, member)
	}
	stdin.Close()
	if err := server.Wait(); err != nil {
		t.Errorf("the server ended: %v", err)
	}
}

// A kubelet whose PodResources socket takes calls and never answers, and a disk that never gives the
// kubelet's checkpoint out, leave the coordinator to decide with what it knows.
func TestAnswersWithoutKubeletAndDisk(t *testing.T) {
	kubeletDir := shortDir(t)
	checkpoint := filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint")
	if err := errors.Join(os.Mkdir(filepath.Dir(checkpoint), 0o700),
		os.Mkdir(filepath.Join(kubeletDir, "pod-resources"), 0o700)); err != nil {
		t.Fatal(err)
	}
	// nobody accepts
	socket, err := net.Listen("unix", filepath.Join(kubeletDir, "pod-resources", "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	dir := filepath.Join(shortDir(t), "run")
	log, logger := newLog()
	_, member, _ := join(t, Config{RunDir: dir, KubeletDir: kubeletDir, Log: logger}, gpus, threeGPUs, gpus)
	if err := syscall.Mkfifo(checkpoint, 0o600); err != nil { // opening it to read waits for a writer
		t.Fatal(err)
	}
	defer func() { // let the one reader go
		if writer, err := os.OpenFile(checkpoint, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			writer.Close()
		}
	}()
	answers(t, member)
	goroutines := runtime.NumGoroutine()
	if took := answers(t, member); took > answerLimit {
		t.Errorf("answered after %s", took)
	}
	togetherAtTimes(t, log)
	for runtime.NumGoroutine() > goroutines+3 { // until late answers have ended, or the test takes too long
		answers(t, member)
	}
}

// A flood of bad clients neither ends the server nor keeps the plugins from it.
func TestFlood(t *testing.T) {
	dir := filepath.Join(shortDir(t), "run")
	start(t, dir)
	await(t, dir, connected())
	log, logger := newLog()
	// whose questions go over the socket
	_, member, _ := join(t, Config{RunDir: dir, Log: logger}, gpus, threeGPUs, gpus)
	flood := child(t, "flood", dir)
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	var all []time.Duration
	for began := time.Now(); time.Since(began) < time.Second; {
		all = append(all, answers(t, member))
	}
	if took := slices.Max(all); took > answerLimit {
		t.Errorf("answered after %s", took)
	}
	if err := flood.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = flood.Wait() // it was killed
	await(t, dir, connected(gpus))
	togetherAtTimes(t, log)
}

// misbehave is one bad client.
func misbehave(ctx context.Context, dir string, kind int) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if kind%2 == 0 { // garbage, and connections that are left open
		var open []net.Conn
		for range 2 * maxConnections {
			conn, err := net.Dial("unix", SocketPath(dir))
			if err != nil {
				break
			}
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\xff\xff\xff"))
			open = append(open, conn)
		}
		for _, conn := range open {
			conn.Close()
		}
		return
	}
	_, _ = call(ctx, dir, func(client api.CoordinationClient) (any, error) {
		ids := make([]string, device.MaxDevices+kind)
		for i := range ids {
			ids[i] = fmt.Sprint("id", i)
		}
		_, _ = client.Prefer(ctx, &api.PreferRequest{Resource: gpus, Available: ids, Size: 1 << 31})
		_, _ = client.Prefer(ctx, &api.PreferRequest{Resource: strings.Repeat("x", 2*maxMessage)})
		_, _ = client.Allocated(ctx, &api.AllocatedRequest{Resource: fmt.Sprint("r", kind), Devices: ids[:kind]})
		_, _ = client.Explain(ctx, &api.ExplainRequest{})
		stream, err := client.Join(ctx)
		if err != nil {
			return nil, err
		}
		_ = stream.Send(&api.Announcement{Resource: "x", Kind: "y"})
		return stream.Recv()
	})
}

// A server that reads a call late knows that the client has given up.
func TestDeadlineIsTheClients(t *testing.T) {
	for want, deadline := range map[error]time.Time{
		context.DeadlineExceeded: time.Now().Add(-time.Second), nil: time.Now().Add(time.Hour),
	} {
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		var sent metadata.MD
		_ = sendDeadline(ctx, "", nil, nil, nil, func(
			ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption,
		) error {
			sent, _ = metadata.FromOutgoingContext(ctx)
			return nil
		})
		read, cancel := untilDeadline(metadata.NewIncomingContext(t.Context(), sent))
		defer cancel()
		if err := read.Err(); !errors.Is(err, want) {
			t.Errorf("deadline %s: %v", deadline, err)
		}
	}
}
