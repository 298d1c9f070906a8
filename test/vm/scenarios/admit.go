// SPDX-License-Identifier: Apache-2.0

package scenarios

import (
	"context"
	"fmt"

	"github.com/tandem-k8s/tandem/test/vm/cluster"
)

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
