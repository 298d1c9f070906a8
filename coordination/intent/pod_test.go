// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/kubelet/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded are the pods of a kubelet's answer to GET /pods.
func recorded(t testing.TB) []corev1.Pod {
	t.Helper()
	content, err := os.ReadFile("../kubelet/testdata/pods.json")
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// newPods returns what is kept of living pods.
func newPods(list []corev1.Pod, policy Policy) (pods []Pod) {
	for i := range list {
		if kept := reducePod(&list[i], policy); kept.pod != nil {
			pods = append(pods, *kept.pod)
		}
	}
	return pods
}

func TestPods(t *testing.T) {
	t.Parallel()
	list := recorded(t)
	list[2].Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		"amd.com/gpu": resource.MustParse("2"), "nvidia.com/vf": resource.MustParse("0"),
	}
	list[2].Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "other", ResourceName: "amd.com/gpu"},
		}}
	claimed := *list[2].DeepCopy()
	claimed.Status.ExtendedResourceClaimStatus.RequestMappings[0].ContainerName = "c"
	want := []Pod{
		{
			Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, UID: "7d5b6a52-0d54-4b4e-9a3f-0a8f5be0b1c1",
			Created:   time.Date(2026, 3, 2, 9, 14, 7, 0, time.UTC),
			Alignment: Required,
			Containers: []Container{
				{Name: "check", Role: model.Init, Requests: map[string]int{"amd.com/gpu": 1}},
				{Name: "proxy", Role: model.Sidecar, Requests: map[string]int{"tandem.dev/rdma_vf": 1}},
				{Name: "worker", Requests: map[string]int{"amd.com/gpu": 4, "tandem.dev/rdma_vf": 4}},
			},
		},
		{
			Pod: kubelet.Pod{Namespace: "kube-system", Name: "runs"}, UID: "5b4f5e33-9ad1-42d0-8f7f-dd7e59d8a0b4",
			Created: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), Started: true,
			Containers: []Container{{Name: "c", Requests: map[string]int{"amd.com/gpu": 2}}},
		},
	}
	if diff := cmp.Diff(want, newPods(list, Policy{Choose: AllNamespaces})); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if got := newPod(&claimed, Policy{}).Containers; len(got) != 0 {
		t.Errorf("a ResourceClaim fulfils it, no device plugin: %v", got)
	}
	if c := want[0].Of(2); c.String() != "team/train-0/worker" {
		t.Errorf("container %s", c)
	}
}

func TestExclusiveCPUs(t *testing.T) {
	resources := func(cpu, memory string) corev1.ResourceRequirements {
		list := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
		return corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	unlimited := resources("2", "1Gi")
	unlimited.Limits = nil
	less := resources("2", "1Gi")
	less.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	for name, c := range map[string]struct {
		containers []corev1.ResourceRequirements
		want       []int
	}{
		"whole CPUs": {[]corev1.ResourceRequirements{resources("2", "1Gi")}, []int{2}},
		"a part of a CPU": {[]corev1.ResourceRequirements{
			resources("1500m", "1Gi"), resources("1", "1Gi"),
		}, []int{0, 1}},
		"no limit":                   {[]corev1.ResourceRequirements{unlimited}, []int{0}},
		"more at times":              {[]corev1.ResourceRequirements{less}, []int{0}},
		"one that is sure of little": {[]corev1.ResourceRequirements{resources("2", "1Gi"), {}}, []int{0, 0}},
	} {
		pod := &corev1.Pod{}
		for _, r := range c.containers {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: r})
		}
		for i, container := range ContainersOf(pod) {
			if container.CPUs != c.want[i] {
				t.Errorf("%s: container %d has %d CPUs alone, want %d", name, i, container.CPUs, c.want[i])
			}
		}
	}
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		annotations map[string]string
		alignment   Alignment
		chosen      []string
		remarks     int
	}{
		"none":                    {},
		"required":                {map[string]string{AlignmentKey: "required"}, Required, nil, 0},
		"preferred, as every pod": {map[string]string{AlignmentKey: "preferred"}, "", nil, 0},
		"misspelt":                {map[string]string{AlignmentKey: "requird"}, Required, nil, 1},
		"empty":                   {map[string]string{AlignmentKey: ""}, "", nil, 0},
		"own": {map[string]string{DevicesKey: "0000:11:00.0, GPU-0fc3eda5\n"}, "",
			[]string{"0000:11:00.0", "GPU-0fc3eda5"}, 0},
		"HAMi, two containers": {
			map[string]string{
				"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;GPU-3,NVIDIA,0,0:;",
			}, "", []string{"GPU-1", "GPU-2", "GPU-3"}, 0,
		},
		"HAMi, none":           {map[string]string{"hami.io/vgpu-devices-allocated": ";;"}, "", nil, 0},
		"HAMi, something else": {map[string]string{"hami.io/amd-devices-allocated": "GPU-1:;"}, "", nil, 1},
		"Volcano": {map[string]string{"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,1126,0:"}, "",
			[]string{"GPU-1"}, 0},
		"own stands above HAMi's": {map[string]string{
			"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,0,0:;", DevicesKey: "GPU-9",
		}, "", []string{"GPU-9"}, 0},
		"an empty one does not": {map[string]string{
			"volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,1126,0:", DevicesKey: " ",
		}, "", []string{"GPU-1"}, 0},
		"Koordinator": {map[string]string{
			koordinatorKey: `{"gpu":[{"minor":0}],"rdma":[{"minor":0,"extension":{"vfs":[{"minor":-1,"busID":"0000:01:00.2"}]}}]}`,
		}, "", []string{"0000:01:00.2"}, 0},
		"Koordinator, GPUs alone": {map[string]string{
			koordinatorKey: `{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50"}}]}`,
		}, "", nil, 0},
		"Koordinator, no JSON":      {map[string]string{koordinatorKey: `{rdma":[{}]}`}, "", nil, 1},
		"what others wrote is kept": {map[string]string{"kubernetes.io/config.source": "api"}, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := readAnnotations("team", tc.annotations, Policy{Choose: AllNamespaces})
			if got.alignment != tc.alignment || !cmp.Equal(got.chosen, tc.chosen) || len(got.remarks) != tc.remarks {
				t.Errorf("got %q, %v, remarks %q", got.alignment, got.chosen, got.remarks)
			}
		})
	}
}

const koordinatorKey = "scheduling.koordinator.sh/device-allocated"

func TestChoice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		"podresources, pods-api":       "pods-api,podresources",
		"kubelet,kubelet,":             "kubelet",
		"api-server":                   "error",
		"none":                         "",
		"none,kubelet":                 "error",
		"inference":                    "error",
		"pods-api,kubelet,pod-manager": "error",
	} {
		var choice Choice
		err := choice.UnmarshalText([]byte(text))
		got, _ := choice.MarshalText()
		if (err != nil) != (want == "error") || err == nil && string(got) != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
		if text == "" && choice == nil {
			t.Error("no source at all reads as the default")
		}
	}
}

func FuzzPod(f *testing.F) {
	for _, pod := range recorded(f) {
		encoded, err := pod.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded)
	}
	f.Fuzz(func(t *testing.T, encoded []byte) {
		var pod corev1.Pod
		if pod.Unmarshal(encoded) != nil {
			return
		}
		for _, p := range newPods([]corev1.Pod{pod}, Policy{Choose: AllNamespaces}) {
			for _, c := range p.Containers {
				for name, count := range c.Requests {
					if count <= 0 || count > maxRequest {
						t.Errorf("%s asks for %d %s", c.Name, count, name)
					}
				}
			}
		}
	})
}

func FuzzAnnotations(f *testing.F) {
	f.Add("required", "0000:11:00.0,GPU-1", "GPU-1,NVIDIA,1,2:;",
		`{"rdma":[{"extension":{"vfs":[{"busID":"0000:01:00.2"}]}}]}`)
	f.Fuzz(func(t *testing.T, alignment, own, hami, koordinator string) {
		got := readAnnotations("team", map[string]string{
			AlignmentKey: alignment, DevicesKey: own, "hami.io/vgpu-devices-allocated": hami,
			koordinatorKey: koordinator,
		}, Policy{Choose: AllNamespaces})
		if got.alignment != "" && got.alignment != Required && got.alignment != Preferred {
			t.Errorf("alignment %q", got.alignment)
		}
		for _, id := range got.chosen {
			if id == "" || len(id) > maxName || strings.ContainsFunc(id, isForeign) {
				t.Errorf("a name of %d bytes among %d: %q", len(id), len(got.chosen), id)
			}
		}
		remarks := strings.Join(got.remarks, "")
		if len(got.chosen) > maxChosen || len(remarks) > 1024 || !utf8.ValidString(remarks) {
			t.Errorf("%d devices, remarks %q", len(got.chosen), remarks)
		}
	})
}

// What pods write into annotations is bounded, and so is what is said of it.
func TestLongAnnotations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		key, text string
		chosen    int
		remark    string
	}{
		"many":               {DevicesKey, strings.Repeat("a,", maxChosen), maxChosen, ""},
		"too many":           {DevicesKey, strings.Repeat("a,", maxChosen+1), 0, "names 257 devices"},
		"all that there can": {DevicesKey, strings.Repeat("a,", 131000), 0, "bytes, more than"},
		"a long name":        {DevicesKey, strings.Repeat("a", maxName+1), 0, "has 129 bytes"},
		"HAMi, too many": {"hami.io/vgpu-devices-allocated", strings.Repeat("GPU-1,NVIDIA,0,0:", maxChosen+1),
			0, "names 257 devices"},
		"HAMi, a long field": {"hami.io/vgpu-devices-allocated", strings.Repeat("GPU", 4000), 0,
			"is not uuid,type,memory,cores"},
		"Koordinator": {koordinatorKey, `{"rdma":[` + strings.Repeat(" ", maxAnnotation) + `]}`, 0,
			"bytes, more than"},
		"alignment": {AlignmentKey, strings.Repeat("required", 1000), 0, "want preferred or required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tc.key: tc.text}},
			}, Policy{Choose: AllNamespaces})
			said := strings.Join(pod.Remarks, "; ")
			if len(pod.Chosen) != tc.chosen || (tc.remark == "") != (said == "") ||
				!strings.Contains(said, tc.remark) || len(said) > 300 {
				t.Errorf("%d devices, said %q, want %d and %q", len(pod.Chosen), said, tc.chosen, tc.remark)
			}
		})
	}
}

// An administrator says whose annotations count.
func TestPolicy(t *testing.T) {
	t.Parallel()
	strict := Policy{Alignment: Required, Choose: AllNamespaces}
	some := Namespaces{names: []string{"research", "team"}}
	for name, tc := range map[string]struct {
		policy    Policy
		alignment Alignment
		chosen    int
		remarks   int
	}{
		"nobody chooses":   {Policy{}, "", 0, 1},
		"all choose":       {Policy{Choose: AllNamespaces}, "", 1, 0},
		"these choose":     {Policy{Choose: some}, "", 1, 0},
		"others choose":    {Policy{Choose: Namespaces{names: []string{"other"}}}, "", 0, 1},
		"required for all": {strict, "", 1, 1},
		"all may lift it": {Policy{Alignment: Required, Choose: AllNamespaces, OptOut: AllNamespaces},
			Preferred, 1, 0},
		"these may lift it": {Policy{Alignment: Required, Choose: AllNamespaces, OptOut: some},
			Preferred, 1, 0},
		"preferred is nothing else": {Policy{Alignment: Preferred, Choose: AllNamespaces}, "", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annotations := map[string]string{AlignmentKey: "preferred", DevicesKey: "GPU-1"}
			pod := newPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Annotations: annotations}},
				tc.policy)
			if pod.Alignment != tc.alignment || len(pod.Chosen) != tc.chosen || len(pod.Remarks) != tc.remarks {
				t.Errorf("got %q, %v, remarks %q", pod.Alignment, pod.Chosen, pod.Remarks)
			}
			alignment, remark := tc.policy.AlignmentOf("team", map[string]string{AlignmentKey: "preferred"})
			want := Preferred
			if tc.alignment == "" && tc.policy.Alignment == Required {
				want = Required
			}
			if alignment != want {
				t.Errorf("AlignmentOf %q, want %q", alignment, want)
			}
			if heeded := alignment == Preferred; heeded != (remark == "") {
				t.Errorf("AlignmentOf %q with remark %q", alignment, remark)
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"all": "all", "none": "none", "team": "team", " team, research": "team,research",
	} {
		var n Namespaces
		if err := n.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got, _ := n.MarshalText(); string(got) != want {
			t.Errorf("%q: got %q", text, got)
		}
	}
	for _, text := range []string{"", "all,team", "team,,other", "none,team"} {
		n := AllNamespaces
		if err := n.UnmarshalText([]byte(text)); err == nil || !n.Has("any") {
			t.Errorf("%q: %v, %v", text, n, err)
		}
	}
}

// The kubelet sets the phase of an evicted pod before its containers stop: the pod still has its devices.
func TestEvictedPodThatStops(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerStatus{Name: "c"}
	running.State.Running = &corev1.ContainerStateRunning{}
	for name, status := range map[string]corev1.PodStatus{
		"container":           {ContainerStatuses: []corev1.ContainerStatus{running}},
		"init container":      {InitContainerStatuses: []corev1.ContainerStatus{running}},
		"ephemeral container": {EphemeralContainerStatuses: []corev1.ContainerStatus{running}},
	} {
		status.Phase = corev1.PodFailed
		pod := recorded(t)[0]
		if pod.Status = status; len(newPods([]corev1.Pod{pod}, Policy{})) != 1 {
			t.Errorf("%s runs, and the pod has ended", name)
		}
	}
}
