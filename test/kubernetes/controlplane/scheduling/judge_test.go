// SPDX-License-Identifier: Apache-2.0

package scheduling

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tandem-k8s/tandem/test/kubernetes/controlplane/fleet"
)

var moment = flag.Duration("moment", 2*time.Second,
	"`time` from the binding of a pod, as a watch tells of it, until a scheduler has to count the pod")

// decision is what tandem-scheduler went by when it chose a pod's node.
type decision struct {
	at              time.Time
	holding, coming sets.Set[types.UID] // the pods with devices on that node that it counted
}

func (d decision) counted(uid types.UID) bool { return d.holding.Has(uid) || d.coming.Has(uid) }

// note says what the decision knew of a pod.
func (d decision) note(uid types.UID) string {
	switch {
	case d.holding.Has(uid):
		return "holding"
	case d.coming.Has(uid):
		return "coming"
	default:
		return "not counted"
	}
}

var decisionLine = regexp.MustCompile(
	`(?m)^I(\d{4} [0-9:.]+) .*"Tandem has a node for the pod" .*podUID="(\S+)" .*holding=(\S+) coming=(\S+)$`)

// decisions reads the scheduler's log: the last decision on each pod.
func decisions(log string) (map[types.UID]decision, error) {
	all := map[types.UID]decision{}
	year := fmt.Sprint(time.Now().Year())
	for _, found := range decisionLine.FindAllStringSubmatch(log, -1) {
		at, err := time.ParseInLocation("20060102 15:04:05.000000", year+found[1], time.Local)
		if err != nil {
			return nil, fmt.Errorf("read the time of a decision: %w", err)
		}
		d := decision{at: at}
		for i, pods := range []*sets.Set[types.UID]{&d.holding, &d.coming} {
			var uids []types.UID
			if err := json.Unmarshal([]byte(found[3+i]), &uids); err != nil {
				return nil, fmt.Errorf("read the pods of a decision: %w", err)
			}
			*pods = sets.New(uids...)
		}
		all[types.UID(found[2])] = d
	}
	return all, nil
}

// judgement is why kubelets have refused pods of tandem-scheduler.
type judgement struct {
	after  int // a pod of another scheduler was bound after the decision
	before int // it was bound before, but the scheduler had not been told
	lag    time.Duration
	faults []string // the scheduler could have known
}

func (j judgement) String() string {
	if j.after+j.before+len(j.faults) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d for a pod bound after the decision, %d for one bound up to %v before it, "+
		"%d could be known", j.after, j.before, j.lag.Round(time.Millisecond), len(j.faults))
}

// judge finds out of each refused pod of tandem-scheduler whether the scheduler could have known.
func judge(refused []fleet.Pod, nodes *fleet.Fleet, decided map[types.UID]decision) judgement {
	var j judgement
	for _, p := range refused {
		if p.Scheduler != byTandem.name {
			continue
		}
		if fault := j.add(p, nodes, decided); fault != "" {
			j.faults = append(j.faults, fmt.Sprintf("%s on %s is refused (%s): %s",
				p.Job, p.Node, p.Verdict.Reason, fault))
		}
	}
	return j
}

// add judges a pod. What the kubelet has done is done again without the pods of other schedulers that the
// decision did not count. Where the pod is refused then too, they are not the reason.
func (j *judgement) add(p fleet.Pod, nodes *fleet.Fleet, decided map[types.UID]decision) (fault string) {
	d, known := decided[p.UID]
	if !known {
		return "its decision is not in the log"
	}
	var lag time.Duration
	unseen := 0
	v := nodes.Replay(p, func(a fleet.Arrival) bool {
		switch {
		case d.counted(a.UID):
			return false
		case !a.Admitted:
			return true // it took nothing
		case a.Scheduler == p.Scheduler, !a.Ended.IsZero() && a.Ended.Before(d.at):
			return false
		}
		unseen++
		lag = max(lag, d.at.Sub(a.Bound))
		return true
	})
	switch {
	case !v.Admitted:
		return fmt.Sprintf("without the %d pods that were not counted it is refused too: %s; decided at %s by\n%s",
			unseen, v.Reason, d.at.Format("15:04:05.000"), nodes.Before(p, d.note))
	case lag > *moment:
		return fmt.Sprintf("another pod was bound %v before it was decided, and was not counted", lag)
	case lag > 0:
		j.before++
		j.lag = max(j.lag, lag)
	default:
		j.after++
	}
	return ""
}
