// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func quantity(t *testing.T, text string) resource.Quantity {
	t.Helper()
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// cluster is an API server with pods: it streams those there are, says that these were all, and then those
// that come.
type cluster struct {
	t    *testing.T
	pods []corev1.Pod
	come chan corev1.Pod
}

type event struct {
	Type   string     `json:"type"`
	Object corev1.Pod `json:"object"`
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.URL.Path != "/api/v1/pods" || query.Get("fieldSelector") != "spec.nodeName=node-1" {
		c.t.Errorf("asked for %s", r.URL)
	}
	if query.Get("watch") == "" {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items:    c.pods,
		}); err != nil {
			c.t.Error(err)
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(kind string, pod corev1.Pod) {
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		if err := json.NewEncoder(w).Encode(event{kind, pod}); err != nil {
			c.t.Error(err)
		}
		w.(http.Flusher).Flush()
	}
	if query.Get("sendInitialEvents") == "true" {
		for _, pod := range c.pods {
			pod.ResourceVersion = "1"
			send("ADDED", pod)
		}
		bookmark := corev1.Pod{}
		bookmark.ResourceVersion, bookmark.Annotations = "1",
			map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send("BOOKMARK", bookmark)
	}
	for {
		select {
		case pod := <-c.come:
			pod.ResourceVersion = "2"
			send("ADDED", pod)
		case <-r.Context().Done():
			return
		}
	}
}

// watch opens the API server alone as a source, and stops it with the test.
func watch(t *testing.T, server *httptest.Server) *Sources {
	t.Helper()
	s, err := Open(Config{
		Choice:    Choice{APIServer},
		Node:      "node-1",
		APIServer: &rest.Config{Host: server.URL},
		Log:       slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestAPIServer(t *testing.T) {
	c := &cluster{t: t, pods: recorded(t), come: make(chan corev1.Pod)}
	s := watch(t, httptest.NewServer(c))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	answer, ok := s.Pods(ctx)
	if !ok || answer.Source != APIServer || len(answer.Pods) != 2 {
		t.Fatalf("answer %v, %v", answer, ok)
	}
	for _, pod := range answer.Pods {
		if pod.Name == "train-0" &&
			(len(pod.Containers) != 3 || pod.Alignment != Required || pod.Containers[1].Role != Sidecar) {
			t.Errorf("pod %v", pod)
		}
	}
	fresh := *recorded(t)[0].DeepCopy()
	fresh.Name, fresh.UID = "train-1", "fresh"
	c.come <- fresh
	for len(answer.Pods) != 3 && ctx.Err() == nil {
		answer, _ = s.Pods(ctx)
	}
	if len(answer.Pods) != 3 {
		t.Errorf("the new pod was not seen: %v", answer.Pods)
	}
}

// An API server that is away costs a question its deadline once, and no more.
func TestAPIServerIsNotWaitedFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	s := watch(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, ok := s.Pods(ctx); ok {
		t.Error("answered without having been told")
	}
	if s.sources[0].ready() {
		t.Error("is asked again at once")
	}
}

// TestSlimPodsSayTheSame: what the watch keeps of a pod tells the same as the pod, with every field that the
// API has.
func TestSlimPodsSayTheSame(t *testing.T) {
	list := corev1.ResourceList{
		"cpu": quantity(t, "16"), "memory": quantity(t, "64Gi"),
		"amd.com/gpu": quantity(t, "2"), "nvidia.com/vf": quantity(t, "2"),
	}
	sure := corev1.ResourceRequirements{Limits: list, Requests: list}
	always, statuses := corev1.ContainerRestartPolicyAlways, make([]corev1.ContainerStatus, 2)
	full := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "train-0", UID: "u", CreationTimestamp: metav1.Unix(1e9, 0),
			Labels: map[string]string{"app": "train"}, Annotations: map[string]string{
				AlignmentKey: "required", choosers[0].key: "0000:11:00.0", "example.com/other": "x",
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1",
			InitContainers: []corev1.Container{
				{Name: "sidecar", RestartPolicy: &always, Resources: sure}, {Name: "init", Resources: sure},
			},
			Containers: []corev1.Container{
				{Name: "a", Image: "i", Resources: sure, Env: []corev1.EnvVar{{Name: "A"}}}, {Name: "b", Resources: sure},
			},
		},
	}
	for what, change := range map[string]func(*corev1.Pod){
		"guaranteed": func(*corev1.Pod) {},
		"fraction": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": quantity(t, "500m")}
		},
		"burstable":          func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil },
		"resources of a pod": func(p *corev1.Pod) { p.Spec.Resources = &sure },
		"static": func(p *corev1.Pod) {
			p.Annotations[corev1.MirrorPodAnnotationKey] = "hash"
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-1"}}
		},
		"running":             func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
		"started":             func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{} },
		"with a status":       func(p *corev1.Pod) { p.Status.ContainerStatuses = statuses },
		"with an init status": func(p *corev1.Pod) { p.Status.InitContainerStatuses = statuses },
		"ended":               func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"refused": func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.StartTime = corev1.PodFailed, "TopologyAffinityError",
				&metav1.Time{Time: time.Now()}
		},
		"by a claim": func(p *corev1.Pod) {
			p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
				RequestMappings: []corev1.ContainerExtendedResourceRequest{
					{ContainerName: "a", ResourceName: "amd.com/gpu"},
				},
			}
		},
	} {
		pod := full.DeepCopy()
		change(pod)
		kept, err := slim(pod.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		watched, _ := kept.(*corev1.Pod)
		policy := Policy{Choose: AllNamespaces}
		told := newPods([]corev1.Pod{*pod}, policy)
		if diff := cmp.Diff(told, newPods([]corev1.Pod{*watched}, policy)); diff != "" {
			t.Errorf("%s (-pod +what is kept of it):\n%s", what, diff)
		}
		rejected := rejectedPods([]corev1.Pod{*pod}, time.Now())
		if diff := cmp.Diff(rejected, rejectedPods([]corev1.Pod{*watched}, time.Now())); diff != "" {
			t.Errorf("%s (-refused +what is kept of it):\n%s", what, diff)
		}
		if (what == "refused") != (len(rejected) == 1) {
			t.Errorf("%s: refused %+v", what, rejected)
		}
		if what == "guaranteed" && told[0].Containers[2].CPUs != 16 {
			t.Errorf("%s: %+v", what, told)
		}
	}
}

// revocable is an API server that can refuse to tell of pods, and ends the streams then.
type revocable struct {
	cluster
	mu      sync.Mutex
	refused bool
	end     context.CancelFunc
	allowed context.Context
}

func (r *revocable) refuse(refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		r.end()
	}
	r.refused = refused
	r.allowed, r.end = context.WithCancel(context.Background())
}

func (r *revocable) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	refused, allowed := r.refused, r.allowed
	r.mu.Unlock()
	if refused {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	defer context.AfterFunc(allowed, cancel)()
	r.cluster.ServeHTTP(w, request.WithContext(ctx))
}

// Once the API server refuses to tell of pods, what it told before counts no more, and again once it tells.
func TestAPIServerThatRefuses(t *testing.T) {
	t.Parallel()
	r := &revocable{cluster: cluster{t: t, pods: recorded(t)}}
	r.refuse(false)
	t.Cleanup(func() { r.refuse(true) })
	s := watch(t, httptest.NewServer(r))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, refused := range []bool{false, true, false} {
		r.refuse(refused)
		answered := refused
		for answered == refused && ctx.Err() == nil {
			_, answered = s.Pods(ctx)
		}
		if answered == refused {
			t.Fatalf("refused %v, answered %v", refused, answered)
		}
		if now, _ := s.Enforcement(); now.Enforced() == refused {
			t.Errorf("refused %v: %s", refused, now)
		}
	}
}
