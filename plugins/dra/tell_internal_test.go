// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/plugins/dra/claims"
	"github.com/tandem-k8s/tandem/plugins/gpu"
	"github.com/tandem-k8s/tandem/plugins/gpu/amd"
	"github.com/tandem-k8s/tandem/plugins/rdma"
	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
	"github.com/tandem-k8s/tandem/test/machines"
	"github.com/tandem-k8s/tandem/topology"
)

// A failure is logged again after it was over, and its end is logged.
func TestSecondOutageIsLogged(t *testing.T) {
	m := newMigrating(t)
	log := &bytes.Buffer{}
	m.viewer.holders.complaints = newComplaints(slog.New(slog.NewTextHandler(log, nil)))
	for range 2 {
		m.record(nil)
		m.viewer.holders.updateHolders(t.Context(), m.machine)
		file := kubelet.CheckpointPath(m.config.KubeletDir)
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			m.viewer.holders.updateHolders(t.Context(), m.machine)
		}
	}
	const problem = "device checkpoint of the kubelet not read; using the last known holders"
	if told := strings.Count(log.String(), `msg="`+problem); told != 2 {
		t.Errorf("two outages, told %d times:\n%s", told, log)
	}
	if told := strings.Count(log.String(), `msg="recovered from: `+problem); told != 1 {
		t.Errorf("one end, told %d times:\n%s", told, log)
	}
}

// An error of an activity that does not report its end counts as new after an hour without the error.
func TestComplaintWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		c := newComplaints(slog.New(slog.NewTextHandler(log, nil)))
		for _, pause := range []time.Duration{0, 30 * time.Minute, 45 * time.Minute, 61 * time.Minute} {
			<-time.After(pause)
			c.reportError("cannot publish", errors.New("no"))
		}
		if told := strings.Count(log.String(), "WARN"); told != 2 {
			t.Errorf("told %d times:\n%s", told, log)
		}
	})
}

var errAway = errors.New("away")

// awayKubelet answers nothing.
type awayKubelet struct{}

func (awayKubelet) Pods(context.Context) ([]corev1.Pod, error) { return nil, errAway }
func (awayKubelet) List(context.Context) (kubelet.View, error) { return kubelet.View{}, errAway }
func (awayKubelet) Get(context.Context, kubelet.Pod) (kubelet.View, error) {
	return kubelet.View{}, errAway
}

// unboundSocket is a status socket that cannot be bound.
type unboundSocket struct{ coordination.Socket }

func (unboundSocket) Listen() (coordination.Listener, error) { return nil, errAway }

// failing are GPUs that all fail while the driver runs.
type failing struct {
	gpu.Backend
	failed atomic.Bool
}

func (f *failing) Discover() (gpu.Inventory, error) {
	found, err := f.Backend.Discover()
	for _, devices := range found.Resources {
		for i := range devices {
			if f.failed.Load() {
				devices[i].Fail("Xid 79")
			}
		}
	}
	return found, err
}

// Watch lets the GPUs fail after an hour, when the driver has looked at them several times.
func (f *failing) Watch(ctx context.Context, changed func()) error {
	select {
	case <-time.After(time.Hour):
		f.failed.Store(true)
		changed()
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// TestUnsound: the receiver of unsound devices is told of a claim's device that fails while the driver runs,
// with the claim's pod, and of no other device.
func TestUnsound(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if err := os.MkdirAll(registryDir(dir), 0o750); err != nil {
		t.Fatal(err)
	}
	sys, tree := machines.Read(t, oci, 0)
	backend, err := amd.New(sys, amd.Single)
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := gpu.Discover(&failing{Backend: backend}, 0, log)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		server.Leave()
		told := make(chan []coordination.Unsound)
		d, err := New(Config{
			NodeName: "node-1", KubeletDir: dir, RunDir: dir, CDIDir: t.TempDir(), Client: client.New(server),
			Kubelet: awayKubelet{}, Socket: unboundSocket{}, GPUs: gpus, Host: rdma.Host{Sys: sys}, Log: log,
			Tree:    func() (*topology.Tree, error) { return tree, nil },
			Unsound: func(list []coordination.Unsound) { told <- list },
		})
		if err != nil {
			t.Fatal(err)
		}
		checkpointed(t, PluginDir(dir), []claims.Claim{{
			UID: "uid-train", Namespace: "team", Name: "train", Pods: []claims.Pod{{Name: "train-0", UID: "uid-pod"}},
			Devices: []claims.Prepared{{Device: "gpu-11-00-0", GPUs: []string{"0000:11:00.0"}, Group: "train"}},
		}})
		d.viewer.holders.holders.Set(map[string]string{})
		ctx, cancel := context.WithCancel(t.Context())
		if err := d.viewer.buildFirst(ctx); err != nil {
			t.Fatal(err)
		}
		ended, began := make(chan error), time.Now()
		go func() { ended <- d.runActivities(ctx, nil) }()
		var list []coordination.Unsound
		for len(list) == 0 && time.Since(began) < 2*time.Hour {
			list = <-told
		}
		if time.Since(began) < time.Hour {
			t.Error("told before a GPU has failed")
		}
		if len(list) != 1 || list[0].Pod.Name != "train-0" || list[0].UID != "uid-pod" ||
			list[0].Name != "claim train" || list[0].Device != "0000:11:00.0" || list[0].Health != "failed" ||
			list[0].Reason != "Xid 79" {
			t.Errorf("told of %+v", list)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
