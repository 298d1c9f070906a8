// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tandem-k8s/tandem/test/history"
	"github.com/tandem-k8s/tandem/test/vm/build"
	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

// tester runs the tests of all machines and collects the results.
type tester struct {
	*build.Cache
	report func([]Row) error // called with all rows so far
	node   *cluster.Node
	rows   []Row
	pods   atomic.Int64 // number of pods so far
}

func (t *tester) podName() string { return fmt.Sprintf("pod-%d", t.pods.Add(1)) }

func (t *tester) add(r Row) {
	t.rows = append(t.rows, r)
	verdict := "as it should be"
	if r.Problem != "" {
		verdict = "PROBLEM: " + r.Problem
	}
	words := []string{r.Scenario + ":", r.Kubelet(), r.Pairs(), r.note}
	words = slices.DeleteFunc(words, func(s string) bool { return s == "" })
	t.Say("  %s, %s", strings.Join(words, " "), verdict)
	if err := t.report(t.rows); err != nil {
		t.Say("  write the result: %v", err)
	}
}

// failed returns an error with the number of failures.
func (t *tester) failed() error {
	failures := 0
	for _, r := range t.rows {
		if r.Problem != "" {
			failures++
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d of %d results are not as they should be", failures, len(t.rows))
	}
	return nil
}

func (t *tester) title(s setup) string { return t.node.Title() + ": " + s.name }

// removing starts the removal of a pod, and returns a function that waits until the pod is gone.
func (t *tester) removing(ctx context.Context, name string) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- t.node.Remove(ctx, name) }()
	return func() error { return <-done }
}

// told adds a row on the sources that identified the containers of calls: the set-up's source must be the
// most frequent. A late source is replaced by the next one, and an emulated machine is slow.
func (t *tester) told(ctx context.Context, s setup) error {
	start := time.Now()
	count, err := t.node.Decisions(ctx)
	if err != nil {
		return err
	}
	all := 0
	var notes []string
	for _, source := range slices.Sorted(maps.Keys(count)) {
		all += count[source]
		notes = append(notes, fmt.Sprintf("%s: %d", source, count[source]))
	}
	took := time.Since(start)
	r := Row{Setup: t.title(s), Scenario: "sources of decisions", took: took, note: strings.Join(notes, ", ")}
	if 2*count[s.source] <= all {
		r.Problem = "most were made without what the " + s.source + " knows"
	}
	t.add(r)
	return nil
}

// agreed adds a row on the agreement of the kubelet, the ledger and the API server; in DRA mode, of claims,
// the driver's data and the CDI specifications.
func (t *tester) agreed(ctx context.Context, s setup, when string) error {
	start := time.Now()
	t.node.Calm() // all faults before have ended, and the plugins have answered for a pod since
	r := Row{Setup: t.title(s), Scenario: "PodResources, node status and ledger " + when, note: "agree"}
	agree := t.node.Agree
	if s.driver {
		r.Scenario, agree = "claims, tandem status and CDI specifications "+when, t.node.AgreeOnClaims
	}
	if err := agree(ctx); err != nil {
		r.note, r.Problem = "", err.Error()
	}
	r.took = time.Since(start)
	t.add(r)
	return ctx.Err()
}

// judgeHistory adds a row on the history of a phase, and keeps the history in the folder of the machine. All
// pods of the phase are gone.
func (t *tester) judgeHistory() error {
	start := time.Now()
	h, err := t.node.Judge()
	r := Row{Setup: t.node.Title(), Scenario: "history of the pods", took: time.Since(start)}
	r.note = fmt.Sprintf("%d events", len(h.Events))
	if breach := (*history.Breach)(nil); errors.As(err, &breach) {
		r.Problem = fmt.Sprintf("%s: %s: %v", breach.Promise, breach.Reason, breach.Event)
	} else if err != nil {
		r.Problem = err.Error()
	}
	t.add(r)
	name := fmt.Sprintf("run/%s/history-%d-vfs.json", t.node.Shape.Name, t.node.VFsPerPF)
	file, err := os.Create(t.Path(name))
	if err != nil {
		return err
	}
	return errors.Join(h.Write(file), file.Close())
}

// tries limits the attempts to create a pod with wrong pairs because of a late answer. A plugin has 100 ms,
// which an emulated machine on a busy host does not always keep; the result includes late answers.
const tries = 10

// try creates a scenario's pod, judges its outcome, and returns the pod.
func (t *tester) try(ctx context.Context, s setup, c scenario) (name string, err error) {
	name, o, late, err := t.admit(ctx, s, c)
	if err == nil {
		t.add(Row{
			Setup: t.title(s), Scenario: c.name, Problem: judge(s, c, o),
			outcome: o, note: join(lateNote(late), c.limit),
		})
	}
	return name, err
}

// admit creates a pod, and repeats after a wrong outcome with a late answer; late is the number of
// repetitions. Every attempt has a name of its own, like the pods of a ReplicaSet.
func (t *tester) admit(
	ctx context.Context, s setup, c scenario,
) (name string, o *cluster.Outcome, late int, err error) {
	late, err = t.unlessLate(ctx, s.source, c.name, func() (good bool, err error) {
		if name != "" {
			if err := t.node.Remove(ctx, name); err != nil {
				return false, err
			}
		}
		name = t.podName()
		if o, err = t.node.Create(ctx, c.pod(name)); err != nil {
			return false, err
		}
		good = judge(s, c, o) == ""
		if !good && o.Reason == "" {
			t.node.Keep(ctx, name, t.Path("run/"+name+".log"))
		}
		return good, nil
	})
	return name, o, late, err
}

// unlessLate calls try, and repeats after a failure with a late answer in the daemons' logs; late is the
// number of repetitions.
func (t *tester) unlessLate(
	ctx context.Context, source, what string, try func() (good bool, err error),
) (late int, err error) {
	for ; ; late++ {
		before, err := t.lateAnswers(ctx, source)
		if err != nil {
			return late, err
		}
		good, err := try()
		if err != nil {
			return late, err
		}
		after, err := t.lateAnswers(ctx, source)
		if err != nil || good || after == before || late == tries-1 {
			return late, err
		}
		t.Say("  %s: an answer came late: once more", what)
	}
}

// lateAnswers counts the daemons' late answers so far, and the decisions without the required source of pod
// requests, if source is not "".
func (t *tester) lateAnswers(ctx context.Context, source string) (int, error) {
	late, err := t.node.LateAnswers(ctx)
	if err != nil || source == "" {
		return late, err
	}
	count, err := t.node.Decisions(ctx)
	for told, decisions := range count {
		if told != source {
			late += decisions
		}
	}
	return late, err
}

func lateNote(late int) string {
	if late == 0 {
		return ""
	}
	return fmt.Sprintf("after %d tries in which an answer came late", late)
}
