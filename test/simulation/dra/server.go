// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-k8s/tandem/coordination/kubelet"
)

// Paths of collections of the API.
const (
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	nodesPath  = "/api/v1/nodes"
)

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

func claimPath(namespace, name string) string {
	return "/apis/resource.k8s.io/v1/namespaces/" + namespace + "/resourceclaims/" + name
}

// object is an object of the API.
type object interface {
	runtime.Object
	metav1.Object
}

// server is an API server in memory. The simulation changes its objects directly, the driver by requests.
type server struct {
	mu       sync.Mutex
	gates    gates
	objects  map[string]object // by path
	versions int
	oldest   int // version from which changes are known
	names    int
	deleted  []*resourceapi.ResourceSlice // with the version of the deletion
	streams  map[*stream]bool
	away     bool          // all requests but those of lists and watches fail
	silent   bool          // no request is answered
	behind   bool          // watches receive nothing
	healed   chan struct{} // closed when lists and watches are answered again; nil if they are
}

// gates are the feature gates of the server that the driver uses.
type gates struct{ counters, taints bool }

func newServer(options Options) *server {
	return &server{
		gates: gates{counters: options.Counters, taints: options.Taints}, objects: map[string]object{},
		streams: map[*stream]bool{},
	}
}

// put writes an object. Must be called with the mutex.
func (s *server) put(path string, o object) {
	_, before := s.objects[path]
	s.versions++
	o.SetResourceVersion(fmt.Sprint(s.versions))
	s.objects[path] = o
	change := watch.Added
	if before {
		change = watch.Modified
	}
	s.tell(path, change, o)
}

// remove removes an object. Must be called with the mutex.
func (s *server) remove(path string) {
	o, ok := s.objects[path]
	if !ok {
		return
	}
	delete(s.objects, path)
	s.versions++
	if slice, ok := o.(*resourceapi.ResourceSlice); ok {
		gone := slice.DeepCopy()
		gone.ResourceVersion = fmt.Sprint(s.versions)
		s.deleted = append(s.deleted, gone)
		s.tell(path, watch.Deleted, gone)
	}
}

// tell sends an event to the watches of slices.
func (s *server) tell(path string, change watch.EventType, o object) {
	slice, ok := o.(*resourceapi.ResourceSlice)
	if !ok || !strings.HasPrefix(path, slicesPath) {
		return
	}
	for w := range s.streams {
		if w.selects(slice) {
			w.send(change, slice)
		}
	}
}

// edit changes objects.
func (s *server) edit(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// claim returns a copy of a claim, nil for none.
func (s *server) claim(namespace, name string) *resourceapi.ResourceClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	claim, _ := s.objects[claimPath(namespace, name)].(*resourceapi.ResourceClaim)
	return claim.DeepCopy()
}

// claims returns all claims, by path.
func (s *server) claims() (all []*resourceapi.ResourceClaim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if claim, ok := s.objects[path].(*resourceapi.ResourceClaim); ok {
			all = append(all, claim)
		}
	}
	return all
}

// pods returns the names of all pods.
func (s *server) pods() (all []kubelet.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if pod, ok := s.objects[path].(*corev1.Pod); ok {
			all = append(all, kubelet.Pod{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return all
}

// slices returns the slices that a selector selects, by name. Must be called with the mutex.
func (s *server) slices(selects func(*resourceapi.ResourceSlice) bool) (found []*resourceapi.ResourceSlice) {
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if slice, ok := s.objects[path].(*resourceapi.ResourceSlice); ok && selects(slice) {
			found = append(found, slice)
		}
	}
	return found
}

// published returns the node's slices of the driver.
func (s *server) published() []*resourceapi.ResourceSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slices(isOwn)
}

// wipe deletes the node's slices, as the kubelet does.
func (s *server) wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slice := range s.slices(isOwn) {
		s.remove(slicesPath + "/" + slice.Name)
	}
}

// drop drops the fields of features that are off.
func (s *server) drop(slice *resourceapi.ResourceSlice) {
	if !s.gates.counters {
		slice.Spec.SharedCounters = nil
	}
	for i := range slice.Spec.Devices {
		if !s.gates.counters {
			slice.Spec.Devices[i].ConsumesCounters = nil
		}
		if !s.gates.taints {
			slice.Spec.Devices[i].Taints = nil
		}
	}
}

// addPod adds a pod.
func (s *server) addPod(pod *corev1.Pod) {
	s.edit(func() { s.put(podPath(pod.Namespace, pod.Name), pod) })
}

// Troubles of the server.

// leave makes the server fail requests, or not answer them. Lists and watches are not answered in any case.
func (s *server) leave(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.silent = !silent, silent
	if s.healed == nil {
		s.healed = make(chan struct{})
	}
}

// fallBehind keeps events of watches back.
func (s *server) fallBehind() { s.edit(func() { s.behind = true }) }

// heal ends all troubles.
func (s *server) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.silent, s.behind = false, false, false
	if s.healed != nil {
		close(s.healed)
		s.healed = nil
	}
	for w := range s.streams {
		w.wake()
	}
}

// shortWatch is the age of a watch from which client-go repeats it at once: the pause after the end of a
// younger watch is random.
const shortWatch = 2 * time.Second

// switchGates changes the feature gates.
func (s *server) switchGates(to func(gates) gates) {
	s.edit(func() { s.gates = to(s.gates) })
}

// features returns the feature gates.
func (s *server) features() gates {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates
}

// compact forgets all earlier changes: watches of earlier versions end with the status 410.
func (s *server) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions++
	s.oldest, s.deleted = s.versions, nil
	for w := range s.streams {
		w.expire()
		delete(s.streams, w)
	}
}

// cut ends the watches.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.streams {
		if time.Since(w.began) > shortWatch {
			w.end()
			delete(s.streams, w)
		}
	}
}
