// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/node"
	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/plane"
)

var (
	churned = flag.Int("pods-churned", 300, "`number` of pods that come and go in TestChurn")
	seed    = flag.Uint64("seed", 1, "`seed` of random choices")
)

// churn is pods that come and go on nodes that things happen to.
type churn struct {
	*cluster
	t       *testing.T
	pods    *watched
	workers []*worker
	random  *rand.Rand
	wants   sync.Map  // want, by the name of a pod
	trouble time.Time // of the first fault
	faults  map[string]int
}

// want is what a pod has to get.
type want struct {
	gpus, vfs, pairs int
}

// TestChurn has pods with pairs of all kinds come and go, while daemons are killed, are updated and kubelets
// and the API server are away. No device is ever given to two pods, each pod gets as many pairs as it has
// asked for, and when all are gone nothing is left of them.
func TestChurn(t *testing.T) {
	plane.EachVersion(t, func(t *testing.T, o plane.Options) {
		c := startCluster(t, o)
		c.apply(manifests)
		c.apply(templates)
		h := newChurn(t, c)
		for i, machine := range []string{"oci-mi300x-derived", "nv-h100-oci", "amd-mi300x-smc-thor2"} {
			w := c.join(fmt.Sprint("node-", i), machine, 4)
			w.judge = h.judge
			h.workers = append(h.workers, w)
		}
		h.run(*churned)
		h.quiet(h.workers...)
		h.report()
	})
}

func newChurn(t *testing.T, c *cluster) *churn {
	return &churn{
		cluster: c, t: t, pods: c.watch(), random: rand.New(rand.NewPCG(*seed, 0)),
		faults: map[string]int{},
	}
}

// run lets pods come and go: a third of them in peace, then with a fault for every fifth.
func (h *churn) run(total int) {
	const alive = 16
	created, deleted := 0, 0
	for deleted < total {
		now := h.alive()
		running := slices.DeleteFunc(slices.Clone(now), func(p *v1.Pod) bool {
			return p.Status.Phase != v1.PodRunning
		})
		switch {
		case created < total && len(now) < alive:
			h.start(created)
			created++
			if created > total/3 && created%5 == 0 {
				h.fault()
			}
		case len(running) > 0:
			h.end(running[h.random.IntN(len(running))])
			deleted++
		default:
			before := len(h.alive())
			changes := func([]*v1.Pod) bool { return h.anyRunning() || len(h.alive()) != before }
			if !h.pods.wait(h.t.Context(), changes) {
				h.t.Fatalf("no pod of %d runs: %s", len(now), h.explain(now))
			}
		}
		for _, w := range h.workers {
			w.check()
		}
		if h.t.Failed() {
			h.t.FailNow()
		}
	}
}

// alive are the pods of the test that nobody has deleted yet.
func (h *churn) alive() []*v1.Pod {
	return slices.DeleteFunc(h.pods.pods(), func(p *v1.Pod) bool {
		return !h.ours(p) || p.DeletionTimestamp != nil
	})
}

// ours tells the pods of the test from those of the daemons.
func (h *churn) ours(p *v1.Pod) bool {
	_, ours := h.wants.Load(p.Name)
	return ours
}

func (h *churn) anyRunning() bool {
	return slices.ContainsFunc(h.alive(), func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

// start creates a pod of a random kind.
func (h *churn) start(number int) {
	n := []int{1, 1, 1, 2, 2, 4, 8}[h.random.IntN(7)]
	kinds := h.kinds(h.workers[h.random.IntN(len(h.workers))], n)
	kind := slices.Sorted(maps.Keys(kinds))[h.random.IntN(len(kinds))]
	pod := kinds[kind]
	pod.Name = fmt.Sprintf("%s-%03d", kind, number)
	h.wants.Store(pod.Name, want{gpus: n, vfs: n, pairs: n})
	h.create(pod)
}

// judge tells whether a pod got what it has to get.
func (h *churn) judge(w *worker, pod *v1.Pod, given node.Given) error {
	wanted, ours := h.wants.Load(pod.Name)
	if !ours {
		return nil
	}
	got := want{gpus: len(given.GPUs), vfs: len(given.VFs), pairs: w.SameSwitch(given)}
	if got != wanted.(want) {
		return fmt.Errorf("wants %+v and got %+v: %v", wanted, got, given)
	}
	return nil
}

// end has a pod deleted as people do, whose kubelet then unprepares its claims.
func (h *churn) end(pod *v1.Pod) {
	grace := int64(30)
	if err := h.CoreV1().Pods(namespace).Delete(h.t.Context(), pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		h.t.Fatal(err)
	}
	h.pods.wait(h.t.Context(), func([]*v1.Pod) bool {
		return !slices.ContainsFunc(h.alive(), func(p *v1.Pod) bool { return p.UID == pod.UID })
	})
}

// explain says why pods do not run, as far as the API server knows.
func (h *churn) explain(pods []*v1.Pod) string {
	var text strings.Builder
	for _, pod := range pods {
		fmt.Fprintf(&text, "\n%s on %q: %v", pod.Name, pod.Spec.NodeName, pod.Status.Conditions)
	}
	for _, w := range h.workers {
		fmt.Fprintf(&text, "\n%s: %s", w.name, w.daemon.Text())
	}
	return text.String()
}

// report tells how long it took to prepare claims, and what was in the way.
func (h *churn) report() {
	var all []time.Duration
	told, quiet := map[string][]time.Duration{}, map[string][]time.Duration{}
	tries, reasons := 0, map[string]int{}
	for _, w := range h.workers {
		prepares, err := w.Prepares()
		h.must(err)
		for claim, took := range prepares {
			kind, _, _ := strings.Cut(strings.TrimPrefix(claim, namespace+"/"), "-")
			told[kind] = append(told[kind], took)
		}
		for _, prepared := range w.log() {
			if prepared.Devices == nil || prepared.Cached {
				continue
			}
			tries = max(tries, prepared.Tries)
			for _, failed := range prepared.Failed {
				reasons[reason(failed)]++
			}
			if all = append(all, prepared.Took); prepared.At.Before(h.trouble) {
				kind, _, _ := strings.Cut(prepared.Name, "-")
				quiet[kind] = append(quiet[kind], prepared.Took)
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(told)) {
		h.t.Logf("prepared, as the daemons tell, %s: %s", kind, spread(told[kind]))
	}
	for _, kind := range slices.Sorted(maps.Keys(quiet)) {
		h.t.Logf("prepared before the first fault, %s: %s", kind, spread(quiet[kind]))
	}
	h.t.Logf("prepared in all: %s; up to %d tries; faults: %v", spread(all), tries, h.faults)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		h.t.Logf("%d times: %s", reasons[reason], reason)
	}
}

// identity is what differs in sentences that say the same: UIDs, names of claims and of sockets.
var identity = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|(template|pair|near|unchanged)-\d+-[a-z0-9-]+|` +
	`/dev/shm/\S+|127\.0\.0\.1:\d+`)

func reason(failed string) string { return identity.ReplaceAllString(failed, "…") }

func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	slices.Sort(took)
	at := func(share float64) time.Duration {
		return took[int(share*float64(len(took)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%d, p50 %v, p99 %v, at most %v", len(took), at(0.5), at(0.99), at(1))
}
