// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fullPod has every field that is read, and some that are not.
func fullPod() *corev1.Pod {
	list := corev1.ResourceList{
		"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"),
		"amd.com/gpu": resource.MustParse("2"),
	}
	sure := corev1.ResourceRequirements{Limits: list, Requests: list}
	always, running := corev1.ContainerRestartPolicyAlways, corev1.ContainerStatus{Name: "a", Image: "i"}
	running.State.Running = &corev1.ContainerStateRunning{}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train-0", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0)),
			Labels: map[string]string{"app": `{"items":[`}, Annotations: map[string]string{
				"ours": `a "text" with \ and }]`, "example.com/other": strings.Repeat(`\"`, 70_000),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", Resources: &corev1.ResourceRequirements{},
			InitContainers: []corev1.Container{
				{Name: "side", RestartPolicy: &always, Resources: sure}, {Name: "init"},
			},
			Containers: []corev1.Container{
				{Name: "a", Image: "i", Resources: sure, Env: []corev1.EnvVar{{Name: "A", Value: `\`}}}, {Name: "b"},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "[", QOSClass: corev1.PodQOSBurstable,
			StartTime:             &metav1.Time{Time: time.Unix(1e9, 0)},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "b"}, running},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init"}},
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "claim",
				RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "a", ResourceName: "amd.com/gpu"},
				},
			},
		},
	}
}

// reducedPod is what is read of a full pod.
func reducedPod() corev1.Pod {
	pod := *fullPod()
	pod.Labels, pod.Annotations = nil, map[string]string{"ours": pod.Annotations["ours"]}
	pod.Spec.NodeName, pod.Status.Message = "", ""
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Env = "", nil
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{running}
	pod.Status.InitContainerStatuses = make([]corev1.ContainerStatus, 1)
	return pod
}

// TestDecode: both encodings of a pod have the same fields of it, also after another pod in the same memory.
func TestDecode(t *testing.T) {
	t.Parallel()
	plain := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c"}},
	}}
	want, wantPlain := reducedPod(), plain
	var got corev1.Pod
	check := func(e EncodedPod, want *corev1.Pod) {
		t.Helper()
		if err := e.Decode(&got, "ours", "absent"); err != nil {
			t.Fatal(err)
		}
		a, errA := json.Marshal(want)
		b, errB := json.Marshal(&got)
		if diff := cmp.Diff(string(a), string(b)); diff != "" || errA != nil || errB != nil {
			t.Errorf("JSON %t (-want +got):\n%s", e.isJSON, diff)
		}
	}
	for _, pod := range []struct{ full, want *corev1.Pod }{{fullPod(), &want}, {&plain, &wantPlain}} {
		wire, err := pod.full.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		check(EncodedPod{content: wire}, pod.want)
		text, err := json.Marshal(pod.full)
		if err != nil {
			t.Fatal(err)
		}
		check(EncodedPod{content: text, isJSON: true}, pod.want)
	}
}

// TestSplitList: a list in JSON has all its pods, wherever it is cut on its way.
func TestSplitList(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{*fullPod(), {}, *fullPod()}
	list, err := json.Marshal(corev1.PodList{Items: pods})
	if err != nil {
		t.Fatal(err)
	}
	list = bytes.Replace(list, []byte(`},{`), []byte("} ,\n {"), 1)
	names := func(list []byte) (all string, err error) {
		err = splitList(iotest.HalfReader(bytes.NewReader(list)), func(e EncodedPod) error {
			var pod corev1.Pod
			err := e.Decode(&pod)
			all += pod.Name + ";"
			return err
		})
		return all, err
	}
	if got, err := names(list); got != "train-0;;train-0;" || err != nil {
		t.Errorf("pods %q, %v", got, err)
	}
	for _, bad := range []string{
		"", "[]", "{}", `{"items":{}}`, `{"items":[`, `{"items":[{`, `{"items":[{"a":"\"}`, `{"items":[1]}`, `{"items":[{]]]}`,
	} {
		if got, err := names([]byte(bad)); err == nil {
			t.Errorf("%s: pods %q", bad, got)
		}
	}
	none, err := json.Marshal(corev1.PodList{})
	if err != nil {
		t.Fatal(err)
	}
	for _, empty := range []string{`{"kind":"PodList","metadata":{},"items":[]}`, string(none)} {
		if _, err := names([]byte(empty)); err != nil {
			t.Errorf("%s: %v", empty, err)
		}
	}
}

// Fields of a newer kubelet are no reason to know no pod.
func TestSplitNewerMessage(t *testing.T) {
	t.Parallel()
	pod := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("pod"))
	for kind, value := range map[protowire.Type][]byte{
		protowire.VarintType:  protowire.AppendVarint(nil, 1<<40),
		protowire.Fixed64Type: protowire.AppendFixed64(nil, 1),
		protowire.BytesType:   protowire.AppendBytes(nil, []byte("text")),
		protowire.Fixed32Type: protowire.AppendFixed32(nil, 1),
	} {
		other := append(protowire.AppendTag(nil, 17, kind), value...)
		pods := 0
		count := func(p []byte) error {
			if pods++; string(p) != "pod" {
				t.Errorf("%v: pod %q", kind, p)
			}
			return nil
		}
		err := splitMessage(bytes.NewReader(slices.Concat(other, pod, other, pod)), count)
		if err != nil || pods != 2 {
			t.Errorf("%v: %d pods, %v", kind, pods, err)
		}
		if splitMessage(bytes.NewReader(other[:len(other)-1]), count) == nil {
			t.Errorf("%v: a field is cut", kind)
		}
	}
}

// A pod that is cut, or that has a field of another kind, is an error.
func TestDecodeBrokenPods(t *testing.T) {
	t.Parallel()
	wire, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := (EncodedPod{content: wire[:len(wire)-1]}).Decode(&pod); err == nil {
		t.Error("a part of a pod is decoded")
	}
	message := append([]byte{1<<3 | 2, byte(len(wire))}, wire...)
	nothing := func([]byte) error { return nil }
	for _, bad := range [][]byte{
		message[:len(message)-1], append(message, 2<<3), {1<<3 | 2, 0xff, 0xff, 0xff, 0x7f},
	} {
		if err := splitMessage(bytes.NewReader(bad), nothing); err == nil {
			t.Errorf("a list with an error has no error: %x", bad)
		}
	}
	refused := errors.New("refused")
	err = splitMessage(bytes.NewReader(message), func([]byte) error { return refused })
	if !errors.Is(err, refused) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	wire, err := fullPod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Fuzz(func(t *testing.T, wire []byte) {
		var whole, got corev1.Pod
		if whole.Unmarshal(wire) != nil {
			return
		}
		if err := (EncodedPod{content: wire}).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if whole.Name != got.Name || whole.UID != got.UID ||
			len(whole.Spec.Containers) != len(got.Spec.Containers) {
			t.Errorf("%s of UID %s with %d containers is decoded as %s of UID %s with %d", whole.Name, whole.UID,
				len(whole.Spec.Containers), got.Name, got.UID, len(got.Spec.Containers))
		}
	})
}
