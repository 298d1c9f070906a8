// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// nodeName is the node's at the API server.
const nodeName = "node-1"

// APIServer stands in for the cluster's API server: with the token, clients can list and watch the pods of
// one node, and write events.
type APIServer struct {
	server *httptest.Server
	token  string

	mu      sync.Mutex
	wake    chan struct{} // closed when something of this changes
	pods    map[types.UID]*v1.Pod
	names   map[types.UID]string // of all pods so far
	history []change             // the resource version of a change is its position, from 1
	oldest  int                  // oldest resource version for watches
	delay   time.Duration        // of every change on its way to watches
	away    bool                 // all requests are refused
	streams int                  // current number of watches
	random  *rand.Rand           // decides which events are refused
	seen    Seen
}

// change is a change of a pod.
type change struct {
	kind watch.EventType
	pod  *v1.Pod
	at   time.Time
}

// Seen counts events at an API server.
type Seen struct {
	Late    int     // changes on their way while there is a delay
	Broken  int     // watches
	Refused int     // requests for pods
	Taken   int     // events about pods
	Denied  int     // refused events
	Wrong   []error // events about unknown pods
}

// serveAPI serves until stop, with a folder for the files of a pod's service account.
func serveAPI(account string) (*APIServer, error) {
	a := &APIServer{
		token: "token", wake: make(chan struct{}), pods: map[types.UID]*v1.Pod{}, names: map[types.UID]string{},
		oldest: 1,
		random: rand.New(rand.NewPCG(1, 3)),
	}
	a.history = []change{{}} // no resource version is 0
	a.server = httptest.NewUnstartedServer(a)
	a.server.EnableHTTP2 = true
	// of broken connections
	a.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	err := os.Mkdir(account, 0o755)
	for name, content := range map[string][]byte{
		"token": []byte(a.token), "ca.crt": ca, "namespace": []byte("tandem"),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(account, name), content, 0o600)
		}
	}
	if err != nil {
		a.stop()
		return nil, fmt.Errorf("serve API server: %w", err)
	}
	return a, nil
}

// variables returns the environment variables with the API server's address, as set by the kubelet in every
// container.
func (a *APIServer) variables() []string {
	address := a.server.Listener.Addr().String()
	host, port, _ := strings.Cut(address, ":")
	return []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
}

func (a *APIServer) stop() {
	a.server.CloseClientConnections()
	a.server.Close()
}

// Bind adds a pod like the scheduler after its choice of the node.
func (a *APIServer) Bind(pod *v1.Pod) {
	shown := pod.DeepCopy()
	shown.Spec.NodeName, shown.CreationTimestamp, shown.Status.Phase = nodeName, metav1.Now(), v1.PodPending
	a.apply(watch.Added, shown)
}

// Delete removes a pod, if it exists.
func (a *APIServer) Delete(pod *v1.Pod) { a.modify(watch.Deleted, pod, func(*v1.PodStatus) {}) }

// setStatus corresponds to the kubelet's status manager.
func (a *APIServer) setStatus(pod *v1.Pod, set func(*v1.PodStatus)) {
	a.modify(watch.Modified, pod, set)
}

func (a *APIServer) modify(kind watch.EventType, pod *v1.Pod, set func(*v1.PodStatus)) {
	a.mu.Lock()
	shown := a.pods[pod.UID].DeepCopy()
	a.mu.Unlock()
	if shown != nil {
		set(&shown.Status)
		a.apply(kind, shown)
	}
}

func (a *APIServer) apply(kind watch.EventType, pod *v1.Pod) {
	a.changed(func() {
		pod.ResourceVersion = strconv.Itoa(len(a.history))
		a.history = append(a.history, change{kind, pod, time.Now()})
		a.names[pod.UID] = pod.Namespace + "/" + pod.Name
		if a.pods[pod.UID] = pod; kind == watch.Deleted {
			delete(a.pods, pod.UID)
		}
	})
}

// changed applies a change and wakes all waiters.
func (a *APIServer) changed(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.wake)
	a.wake = make(chan struct{})
}

// Seen returns the counts, and a channel that is closed when they change.
func (a *APIServer) Seen() (Seen, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen, a.wake
}

// Streams returns the number of watches, and a channel that is closed at the next change.
func (a *APIServer) Streams() (int, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams, a.wake
}

// Delay delays changes from now on.
func (a *APIServer) Delay(by time.Duration) { a.changed(func() { a.delay = by }) }

// Break breaks all connections.
func (a *APIServer) Break() {
	a.changed(func() { a.seen.Broken += a.streams })
	a.server.CloseClientConnections()
}

// Compact forgets old changes: watches end because their resource version is too old, and clients must list
// again.
func (a *APIServer) Compact() {
	a.changed(func() {
		a.seen.Broken += a.streams
		a.history = append(a.history, change{})
		a.oldest = len(a.history)
	})
}

// Away refuses every request for pods, or no longer.
func (a *APIServer) Away(away bool) { a.changed(func() { a.away = away }) }

// ServeHTTP answers a request.
func (a *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pods := r.URL.Path == "/api/v1/pods" && r.Method == http.MethodGet &&
		r.FormValue("fieldSelector") == "spec.nodeName="+nodeName
	switch {
	case r.Header.Get("Authorization") != "Bearer "+a.token:
		respond(w, r, failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized))
	case pods && a.refuses():
		respond(w, r, failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
	case pods && r.FormValue("watch") != "":
		a.watch(w, r)
	case pods:
		respond(w, r, a.list())
	case strings.HasSuffix(r.URL.Path, "/events") && r.Method == http.MethodPost:
		respond(w, r, a.take(r))
	default:
		respond(w, r, failure(http.StatusForbidden, metav1.StatusReasonForbidden))
	}
}

func (a *APIServer) refuses() bool {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	if away {
		a.changed(func() { a.seen.Refused++ })
	}
	return away
}

func (a *APIServer) list() *v1.PodList {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(len(a.history) - 1)}}
	for _, pod := range a.pods {
		list.Items = append(list.Items, *pod)
	}
	return list
}

// take accepts an event about a pod, or refuses it as if permission were missing.
func (a *APIServer) take(r *http.Request) (answer object) {
	event := &v1.Event{}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest) // the connection was broken
	}
	err = decode(body, event)
	about := event.InvolvedObject
	a.changed(func() {
		switch name := about.Namespace + "/" + about.Name; {
		case err != nil:
			a.seen.Wrong = append(a.seen.Wrong, err)
		case a.names[about.UID] != name:
			a.seen.Wrong = append(a.seen.Wrong, fmt.Errorf("event about %s of UID %s, which is %q: %s",
				name, about.UID, a.names[about.UID], event.Message))
		}
		if answer = event; a.random.IntN(2) == 0 {
			a.seen.Denied++
			answer = failure(http.StatusForbidden, metav1.StatusReasonForbidden)
			return
		}
		a.seen.Taken++
	})
	return answer
}
