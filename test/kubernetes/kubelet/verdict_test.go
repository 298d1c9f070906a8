// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	features "k8s.io/apiserver/pkg/util/feature"
	"sigs.k8s.io/yaml"

	"github.com/tandem-k8s/tandem/cmd/tandem-scheduler/managers"
	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/kubernetes/kubelet/node"
	"github.com/tandem-k8s/tandem/test/published"
)

var verdicts = flag.Int("verdicts", 2000, "admissions that verdicts on a published node are compared on")

// A node tells its verdict as published, and the real managers of devices, CPUs and memory with the
// coordinator behind the plugins decide. Pods of all kinds come and go on nodes of all kinds, devices fall
// ill and get well. Whether the pod is admitted has to be the same, and whether it never can be; so have
// the NUMA nodes of its containers, and the same-switch pairs of what they get.
func TestVerdictIsTheKubelets(t *testing.T) {
	const stay = 100 // admissions on a node
	// of the options of the static CPU policy some are for who asks for them: on the node, and in the scheduler
	must(t, features.DefaultMutableFeatureGate.Set("CPUManagerPolicyAlphaOptions=true"))
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("on", func(t *testing.T) {
		for worker := range uint64(4) {
			t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(*seed, worker))
				for left := *verdicts / 4; left > 0 && !t.Failed(); left -= stay {
					j := startJudged(t, randomJudgedWorld(t, random), random)
					for i := range min(left, stay) {
						j.step(fmt.Sprint("pod-", i))
						if t.Failed() {
							t.Fatalf("seed %d, %v, admission %d", *seed, j.world, i)
						}
					}
					j.stop()
					mu.Lock()
					for what, n := range j.seen {
						seen[what] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("kubelet %s: %v", node.Version, seen)
	for _, what := range []string{
		"admitted", "refused", "refused for ever", "alignment refused", withAll, forManagers,
	} {
		if seen[what] == 0 && *verdicts >= 2000 {
			t.Errorf("never %s: that is not compared", what)
		}
	}
	for _, what := range []string{byChance, uncertain} {
		if seen[what] > max(10, *verdicts/200) {
			t.Errorf("of %d verdicts %d %s: that is too much to be chance", *verdicts, seen[what], what)
		}
	}
}

// What is counted. Verdicts that hang on chance, or on whom the coordinator takes for the asker, are not
// compared; but they are few.
const (
	byChance    = "other by chance"
	uncertain   = "alignment of an uncertain asker"
	withAll     = "with devices, CPUs and memory of one container's own"
	forManagers = "refused for CPUs or memory"
)

// judged is a node whose verdicts are compared.
type judged struct {
	*judgedNode
	shapes verdict.Shapes
	full   float64
}

// step lets pods leave and one come. How full the node is by then changes every few admissions.
func (j *judged) step(name string) {
	if j.random.IntN(10) == 0 {
		j.full = math.Sqrt(j.random.Float64())
	}
	if j.random.IntN(20) == 0 {
		j.sicken()
	}
	for len(j.admitted) > 0 && j.fullness() > j.full {
		i := j.random.IntN(len(j.admitted))
		must(j.t, j.node.Remove(j.admitted[i]))
		j.admitted = slices.Delete(j.admitted, i, i+1)
	}
	j.judge(j.randomPod(name))
}

// judge compares what is told of a pod with what becomes of it.
func (j *judged) judge(pod *v1.Pod) {
	object := j.published()
	state := j.state(object)
	asked := state.Ask(pod)
	told := state.Admit(pod)
	if asked.Admitted != told.Admitted || asked.Never != told.Never || asked.Reason != told.Reason {
		j.t.Errorf("asked %+v, admitting %+v", asked, told)
	}
	if (told.Reason == "") != told.Admitted {
		j.t.Errorf("%+v", told)
	}
	empty := &v1alpha1.NodeTopology{Spec: *object.Spec.DeepCopy()}
	empty.Spec.Held, empty.Spec.MemoryReserved = nil, nil
	alone := j.state(empty).Ask(pod)
	if told.Never && alone.Admitted || !told.Admitted && !told.Never && !alone.Admitted {
		j.t.Errorf("told %+v, alone %+v", told, alone)
	}
	j.late.take()
	err := j.admit(pod)
	certain := j.certain() && !told.Chance
	if warnings := j.late.take(); len(warnings) > 0 {
		certain = false
		j.seen["late"]++
	}
	j.compare(pod, object, told, err, certain)
}

func (j *judged) compare(
	pod *v1.Pod, object *v1alpha1.NodeTopology, told verdict.Verdict, err error, certain bool,
) {
	var rejection *node.Rejection
	if err != nil && !errors.As(err, &rejection) {
		j.t.Fatal(err)
	}
	strict := rejection != nil && strings.Contains(rejection.Message, "alignment is required")
	// what is missing and what is apart can both be the first that the kubelet meets
	same := told.Required == strict || err != nil && !told.Admitted && counts(told.Reason)
	if told.Admitted != (err == nil) || !same {
		switch {
		case told.Chance:
			j.seen[byChance]++
		case !certain && (told.Required || strict): // see coordination/admission: it is no certain asker
			j.seen[uncertain]++
		default:
			j.t.Errorf("%s\ntold %+v\nthe kubelet says %v\n%s", describe(pod), told, err, j.describe(object))
		}
	}
	if err != nil && j.bare(object).Ask(pod).Admitted {
		j.seen[forManagers]++
	}
	switch {
	case err != nil && told.Never:
		j.seen["refused for ever"]++
	case strict:
		j.seen["alignment refused"]++
	case err != nil:
		j.seen["refused"]++
	default:
		j.seen["admitted"]++
		j.admitted = append(j.admitted, pod)
		if j.hasAll(pod) {
			j.seen[withAll]++
		}
		j.given(pod, object, told, certain)
	}
}

// state is that of a node as published.
func (j *judged) state(object *v1alpha1.NodeTopology) *verdict.State {
	m, err := managers.New(&object.Spec)
	must(j.t, err)
	n, err := j.shapes.New(object, m)
	must(j.t, err)
	state := n.State(func(types.UID) bool { return true })
	if state.Err() != nil {
		j.t.Fatal(state.Err())
	}
	return state
}

// bare is the node when its CPUs and memory are not looked at.
func (j *judged) bare(object *v1alpha1.NodeTopology) *verdict.State {
	n, err := j.shapes.New(object, nil)
	must(j.t, err)
	return n.State(func(types.UID) bool { return true })
}

// counts reports whether a reason is that there are too few devices.
func counts(reason string) bool {
	return strings.Contains(reason, "are free") || strings.Contains(reason, "is healthy")
}

// given compares what the containers of an admitted pod got.
func (j *judged) given(pod *v1.Pod, object *v1alpha1.NodeTopology, told verdict.Verdict, certain bool) {
	if certain {
		j.seen["certain"]++
	}
	pairs, same, got := 0, true, ""
	for i, c := range told.Containers {
		devices := j.node.Devices(pod, c.Name)
		nodes := j.node.Affinity(pod, c.Name)
		// those of later ones hang on the devices of the ones before
		if (certain || i == 0) && c.Nodes != 0 && !slices.Equal(nodes, c.Nodes.Numbers()) {
			j.t.Errorf("%s: container %s: NUMA nodes %v, the kubelet's %v", describe(pod), c.Name,
				c.Nodes.Numbers(), nodes)
		}
		pairs += j.pairs(devices)
		foretold := published.IDs(j.world.offered, c.Devices)
		same = same && maps.EqualFunc(devices, foretold, slices.Equal[[]string])
		got += fmt.Sprintln(c.Name, devices, "told", foretold)
	}
	j.seen["pairs"] += pairs
	switch {
	case told.Chance:
		j.seen["with devices by chance"]++
		return
	case !same:
		j.seen["other devices"]++
	default:
		j.seen["same devices"]++
	}
	if pairs != told.Pairs {
		if certain {
			j.t.Errorf("%s\ntold %+v\ngot %d pairs of\n%s%s", describe(pod), told, pairs, got, j.describe(object))
		}
		j.seen["other pairs"]++
	}
}

func describe(pod *v1.Pod) string {
	var text strings.Builder
	fmt.Fprint(&text, pod.Annotations)
	for i, c := range node.Containers(pod) {
		sidecar := i < len(pod.Spec.InitContainers) && c.RestartPolicy != nil
		fmt.Fprintf(&text, " %s(%t)%v %v CPUs %v", c.Name, sidecar, node.Requests(&c), c.Resources.Requests.Cpu(),
			c.Resources.Requests.Memory())
	}
	return text.String()
}

func (j *judged) describe(object *v1alpha1.NodeTopology) string {
	const newest = 8
	content, err := yaml.Marshal(object.Spec)
	must(j.t, err)
	var text strings.Builder
	text.Write(content)
	decisions := j.coordinator.Recent()
	for _, d := range decisions[max(0, len(decisions)-newest):] {
		fmt.Fprintf(&text, "decided: %v\n", d)
	}
	return text.String()
}
