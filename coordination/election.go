// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
)

// election makes a plugin the server while the plugin holds the lock.
type election struct {
	config  *Config
	machine *machine
	sources *intent.Sources
	lost    <-chan struct{} // signals that the connection to the server broke

	serving atomic.Pointer[nodeServer] // nil while another plugin serves
	beat    atomic.Pointer[time.Time]  // time of the last round
}

// run serves after each successful election until ctx is done. An unusable run directory is logged once; the
// plugin then works alone and tries again.
func (e *election) run(ctx context.Context) {
	var burst time.Time
	var complaint string
	for ctx.Err() == nil {
		e.turn()
		err := system.Survive(e.config.Log, func() error { return e.serveIfElected(ctx) })
		complaint = e.logFailure(err, complaint)
		pause, lost := electionPause, e.lost
		switch {
		case system.Panicked(err): // likely to recur: the other plugin takes its turn
			lost = nil
		case time.Now().Before(burst):
			pause = electionStep
		}
		select {
		case <-ctx.Done():
		case <-lost:
			burst = time.Now().Add(electionBurst)
		case <-time.After(pause):
		}
	}
}

// logFailure logs the error of a round, a repeated error once. The result is the error's text, "" for none.
func (e *election) logFailure(err error, complaint string) string {
	if err == nil || errors.Is(err, errLocked) {
		return ""
	}
	if err.Error() != complaint {
		e.config.Log.Error("coordination socket not available; retrying",
			"run_dir", e.config.RunDir, "error", err)
	}
	return err.Error()
}

// serveIfElected serves while this plugin holds the lock, and returns errLocked if another process holds the
// lock. The lock is released after the last write, even beyond writeTimeout: two servers never write the
// coordinator's file at the same time.
func (e *election) serveIfElected(ctx context.Context) error {
	if err := prepareRunDir(e.config.RunDir); err != nil {
		return err
	}
	release, err := tryLock(e.config.RunDir)
	if err != nil {
		return err
	}
	t := &term{config: e.config, sources: e.sources}
	defer awaitEnd(&t.saving, writeTimeout, release)
	pods, disconnect, err := openPodResources(e.config)
	if err != nil {
		return err
	}
	defer disconnect()
	listener, err := e.config.Socket.Listen()
	if err != nil {
		return err
	}
	if t.coordinator, err = newCoordinator(e.config, e.machine, e.sources, pods); err != nil {
		return errors.Join(err, listener.Close(), e.config.Socket.Remove())
	}
	e.config.Log.Info("serving coordination", "socket", SocketPath(e.config.RunDir))
	return t.serve(ctx, listener, e.serving.Store, e.turn)
}

// openPodResources returns the kubelet's PodResources API, and a function that closes the connection.
func openPodResources(c *Config) (pods PodResources, disconnect func(), err error) {
	if c.PodResources != nil {
		return c.PodResources, func() {}, nil
	}
	socket, err := kubelet.NewPodResources(c.KubeletDir)
	if err != nil {
		return nil, nil, err
	}
	return socket, func() { socket.Close() }, nil
}

// stuck is the maximum time between two rounds of the election, which runs every electionPause.
const stuck = 6 * electionPause

// turn records a round of the election.
func (e *election) turn() {
	now := time.Now()
	e.beat.Store(&now)
}

// alive returns an error if the election hangs or, while this plugin serves, the coordinator, so that a
// restart would help. Waits at most until ctx is done.
func (e *election) alive(ctx context.Context) error {
	if beat := e.beat.Load(); beat != nil && time.Since(*beat) > stuck {
		return fmt.Errorf("the election of the coordination server hangs since %s", beat.Format(time.RFC3339))
	}
	if own := e.serving.Load(); own != nil {
		return own.coordinator.Alive(ctx)
	}
	return nil
}

// openSources returns the sources of pod requests.
func (e *election) openSources() (*intent.Sources, error) {
	return intent.Open(intent.Config{
		Choice:     e.config.Intent.Sources,
		KubeletDir: e.config.KubeletDir,
		Kubelet:    e.config.Intent.Kubelet,
		Readers:    e.config.Intent.Readers,
		Policy:     e.config.Intent.Policy,
		Rejected:   e.rejected,
		Enforced:   e.config.Enforced,
		Log:        e.config.Log,
	})
}

// rejected forwards rejected pods with requests for resources of the plugins, while this plugin serves.
func (e *election) rejected(pods []intent.Rejected) {
	own := e.serving.Load()
	if own == nil || e.config.Rejected == nil {
		return
	}
	announced, _ := own.coordinator.Announced()
	names := map[string]bool{}
	for _, r := range announced.Resources {
		names[r.Name] = true
	}
	e.config.Rejected(slices.DeleteFunc(pods, func(p intent.Rejected) bool {
		return !slices.ContainsFunc(p.Resources, func(name string) bool { return names[name] })
	}))
}
