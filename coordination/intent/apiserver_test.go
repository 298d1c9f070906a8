package intent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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
