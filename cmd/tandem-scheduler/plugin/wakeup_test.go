// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-k8s/tandem/coordination/v1alpha1"
	"github.com/tandem-k8s/tandem/test/server"
)

// objectServer serves NodeTopology objects like an API server, with a connection per watch.
type objectServer struct {
	mu       sync.Mutex
	objects  []*v1alpha1.NodeTopology
	watchers []chan []byte
	watched  chan string // receives each new watch
}

func (s *objectServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case q.URL.Query().Get("sendInitialEvents") == "true": // client-go lists then
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422}`))
	case q.URL.Query().Get("watch") != "":
		s.watch(w, q)
	default:
		list := v1alpha1.NodeTopologyList{}
		list.Kind, list.APIVersion, list.ResourceVersion = "NodeTopologyList", "tandem.dev/v1alpha1", "1"
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, o := range s.objects {
			list.Items = append(list.Items, *o)
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (s *objectServer) watch(w http.ResponseWriter, q *http.Request) {
	events := make(chan []byte, 100)
	s.mu.Lock()
	s.watchers = append(s.watchers, events)
	s.mu.Unlock()
	s.watched <- q.UserAgent()
	w.(http.Flusher).Flush()
	for {
		select {
		case event := <-events:
			_, _ = w.Write(event)
			w.(http.Flusher).Flush()
		case <-q.Context().Done():
			return
		}
	}
}

// publish writes a new version of an object.
func (s *objectServer) publish(o *v1alpha1.NodeTopology) {
	body, _ := json.Marshal(map[string]any{"type": "MODIFIED", "object": o})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.watchers {
		c <- append(body, '\n')
	}
}

// TestWakeUp: pods wait for a publication of a node. The informer that gives Filter the object also wakes the
// scheduler's queue, so that no pod is retried too early and then left until the queue retries all pods after
// five minutes.
func TestWakeUp(t *testing.T) {
	metrics.Register()
	ctx := t.Context()
	s := &objectServer{watched: make(chan string, 10)}
	const rounds = 3
	client := fake.NewClientset()
	for i := range rounds {
		o := server.Topology(fmt.Sprint("n", i), 1, true)
		o.ResourceVersion, o.Spec.Resources[0].Unhealthy = "1", "0,4"
		s.objects = append(s.objects, o)
		_, err := client.CoreV1().Nodes().Create(ctx, server.Node(o.Name, 8), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused, bound := schedule(t, client, s)
	<-s.watched // nothing is published before
	for i := range rounds {
		pod := server.Pod(fmt.Sprint("p", i), 4, 4)
		pod.Spec.SchedulerName = "default-scheduler"
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: fmt.Sprint("n", i)}
		if _, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait(t, refused, pod.Name)
		o := s.objects[i].DeepCopyObject().(*v1alpha1.NodeTopology)
		o.Spec.Resources[0].Unhealthy, o.ResourceVersion = "", fmt.Sprint(10+i)
		s.publish(o)
		wait(t, bound, pod.Name)
	}
	if len(s.watched) > 0 {
		t.Errorf("the objects are watched once more, by %s", <-s.watched)
	}
}

func wait(t *testing.T, names <-chan string, want string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case name := <-names:
			if name == want {
				return
			}
		case <-late:
			t.Fatalf("nothing happens to pod %s", want)
		}
	}
}

// schedule runs a scheduler with the plugin on objects of a server until the test ends, and returns the names
// of the pods that the scheduler refuses and binds.
func schedule(t *testing.T, client *fake.Clientset, s *objectServer) (refused, bound chan string) {
	t.Helper()
	api := httptest.NewServer(s)
	t.Cleanup(func() {
		api.CloseClientConnections()
		api.Close()
	})
	refused, bound = make(chan string, 100), make(chan string, 100)
	client.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch a := a.(type) {
		case clienttesting.CreateAction:
			if b, isBinding := a.GetObject().(*v1.Binding); isBinding {
				bound <- b.Name
				return true, b, nil
			}
		case clienttesting.PatchAction:
			refused <- a.GetName()
		}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	dynamicClient, err := dynamic.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	dynamicFactory := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0)
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	profiles := defaults.Profiles
	profiles[0].Plugins.MultiPoint.Enabled = append(profiles[0].Plugins.MultiPoint.Enabled,
		config.Plugin{Name: Name, Weight: 10000})
	var objects Objects
	sched, err := scheduler.New(ctx, client, factory, dynamicFactory,
		profile.RecorderFactory(func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }),
		scheduler.WithProfiles(profiles...), scheduler.WithKubeConfig(&rest.Config{Host: api.URL}),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: objects.New}),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Watch(ctx, dynamicFactory); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	dynamicFactory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	dynamicFactory.WaitForCacheSync(ctx.Done())
	running.Go(func() { sched.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
		dynamicFactory.Shutdown()
	})
	return refused, bound
}
