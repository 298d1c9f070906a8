// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-k8s/tandem/coordination/verdict"
	"github.com/tandem-k8s/tandem/test/server"
)

// Annotations and labels of the pods.
const (
	lifeKey = "test.tandem.dev/life" // how long the pod runs
	tryKey  = "test.tandem.dev/try"  // how many pods of the job were refused before
	jobKey  = "test.tandem.dev/job"
)

// tries is how often a refused pod is replaced: a Job's backoffLimit.
const tries = 6

// Pod is the result of a bound pod.
type Pod struct {
	Job, Scheduler, Node string
	UID                  types.UID
	Try                  int       // how many pods of the job were refused before
	Bound                time.Time // time at the node
	Verdict              verdict.Verdict
}

// Wish is a pod's request.
type Wish struct {
	GPUs, VFs int
	Life      time.Duration // 0 for ever
	Scheduler string
	Priority  string // name of a class; "" for none
	Node      string // node of a bound pod; "" for a pod to be scheduled
}

// newPod returns a Guaranteed pod, because some schedulers consider NUMA nodes only for Guaranteed pods.
func newPod(name string, w Wish) *v1.Pod {
	pod := server.Pod(name, w.GPUs, w.VFs)
	asked := pod.Spec.Containers[0].Resources.Requests // the limits are the same
	asked[v1.ResourceCPU], asked[v1.ResourceMemory] = resource.MustParse("1"), resource.MustParse("1Gi")
	pod.UID = "" // set by the API server
	pod.Labels = map[string]string{jobKey: name}
	pod.Annotations = map[string]string{lifeKey: w.Life.String(), tryKey: "0"}
	pod.Spec.SchedulerName, pod.Spec.NodeName = w.Scheduler, w.Node
	pod.Spec.RestartPolicy, pod.Spec.PriorityClassName = v1.RestartPolicyNever, w.Priority
	return pod
}

// nextTry returns the replacement of a refused pod, or nil if the job has failed.
func nextTry(pod *v1.Pod) *v1.Pod {
	next := try(pod) + 1
	if next > tries {
		return nil
	}
	again := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", pod.Labels[jobKey], next), Labels: pod.Labels,
		Annotations: map[string]string{lifeKey: pod.Annotations[lifeKey], tryKey: fmt.Sprint(next)},
	}}
	again.Spec = v1.PodSpec{
		SchedulerName: pod.Spec.SchedulerName, RestartPolicy: pod.Spec.RestartPolicy,
		PriorityClassName: pod.Spec.PriorityClassName,
		Containers:        []v1.Container{{Name: "app", Image: "app", Resources: pod.Spec.Containers[0].Resources}},
	}
	return again
}

func try(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Annotations[tryKey])
	if err != nil {
		return tries
	}
	return n
}

// lifetime returns the running time of a pod, 0 for no limit.
func lifetime(pod *v1.Pod) time.Duration {
	life, err := time.ParseDuration(pod.Annotations[lifeKey])
	if err != nil {
		return 0
	}
	return life
}
