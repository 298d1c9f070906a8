// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/plugins/dra/pool"
)

// fault is something that happens to a node.
func (h *churn) fault() {
	kinds := []struct {
		name string
		do   func(*worker)
	}{
		{"daemon killed", h.killed}, {"daemon killed while it writes", h.killedAtWrite},
		{"daemon updated", h.updated}, {"kubelet restarted", (*worker).restartKubelet},
		{"API server away", h.serverAway},
	}
	kind := kinds[h.random.IntN(len(kinds))]
	if len(h.faults) == 0 {
		h.trouble = time.Now()
	}
	h.faults[kind.name]++
	kind.do(h.workers[h.random.IntN(len(h.workers))])
}

// killed kills a daemon at a random moment, and starts another one.
func (h *churn) killed(w *worker) {
	w.t.Helper()
	h.pods.wait(h.t.Context(), moment(h.random.IntN(4)))
	h.must(w.daemon.Kill())
	w.daemon = w.startDaemon()
}

// moment comes when the pods have changed so many times.
func moment(changes int) func([]*v1.Pod) bool {
	return func([]*v1.Pod) bool {
		changes--
		return changes < 0
	}
}

// killedAtWrite kills a daemon when it next changes a file of what it remembers or of what containers get:
// which of them is drawn by lot. It may have written more when it dies.
func (h *churn) killedAtWrite(w *worker) {
	w.t.Helper()
	watcher, err := fsnotify.NewWatcher()
	h.must(err)
	defer watcher.Close()
	for _, dir := range []string{w.CDI(), filepath.Join(w.Kubelet(), "plugins", pool.Driver)} {
		h.must(os.MkdirAll(dir, 0o755))
		h.must(watcher.Add(dir))
	}
	deadline := time.After(3 * time.Second) // perhaps there is nothing to write
	for skip := h.random.IntN(6); skip >= 0; skip-- {
		select {
		case <-watcher.Events:
		case <-deadline:
			skip = 0
		}
	}
	h.must(w.daemon.Kill())
	w.daemon = w.startDaemon()
}

// updated does what a rolling update with maxSurge 1 does: the old daemon ends when the new one is ready.
func (h *churn) updated(w *worker) {
	w.t.Helper()
	old := w.daemon
	w.daemon = w.startDaemon()
	w.ready()
	old.Stop()
}

// serverAway restarts the API server, which is away for some seconds.
func (h *churn) serverAway(*worker) {
	h.t.Helper()
	h.Stop("kube-apiserver")
	h.StartServer()
}

func (h *churn) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// quiet waits until all pods are gone, and looks for what is left of them.
func (h *churn) quiet(workers ...*worker) {
	h.t.Helper()
	if !h.pods.wait(h.t.Context(), func(list []*v1.Pod) bool { return !slices.ContainsFunc(list, h.ours) }) {
		h.t.Fatalf("pods do not go: %s", h.explain(h.pods.pods()))
	}
	for _, w := range workers {
		w.check()
		files, err := w.ClaimFiles()
		if err != nil || len(files) > 0 {
			h.t.Errorf("CDI files of %s are left behind: %v, %v", w.name, files, err)
		}
		told, err := coordination.ReadClaimHolders(filepath.Join(w.Kubelet(), "plugins", pool.Driver), "")
		if err != nil || len(told) > 0 {
			h.t.Errorf("claims of %s still hold devices: %v, %v", w.name, told, err)
		}
	}
}
