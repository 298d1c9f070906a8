// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record/util"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/device"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/coordination/system"
	"github.com/tandem-k8s/tandem/topology/placement"
)

const (
	queueLength = 64               // events in the queue: more than a node starts pods at once
	sendTimeout = 10 * time.Second // per event
	maxMessage  = 1024             // bytes of a message (NoteLengthLimit in pkg/apis/core/validation/events.go)
)

// Outcomes of an event.
const (
	eventSent    = "sent"
	eventFailed  = "failed"  // the API server rejected the event
	eventDropped = "dropped" // the queue was full
)

// eventOutcomes lists all outcomes.
var eventOutcomes = []string{eventSent, eventFailed, eventDropped}

// Reasons of the events, as kubectl shows them.
const (
	reasonDegraded = "AlignmentDegraded"
	reasonRefused  = "AlignmentRefused"
	reasonRejected = "TopologyRefused"

	reasonUnenforced = "AlignmentNotEnforced" // of the node
	reasonHints      = "NUMAHintsChanged"     // of the node

	deviceFailed   = "DeviceFailed"
	deviceDegraded = "DeviceDegraded"
)

// eventsConfig configures a Sender.
type eventsConfig struct {
	APIServer *rest.Config // nil for the API server of this process's pod
	Component string       // "tandem-gpu"
	Node      string
	Count     func(outcome string) // told of every event; returns at once
	Log       *slog.Logger
}

// eventSender sends Kubernetes Events to the owner of a pod if the devices of a container could not be
// aligned, or if the kubelet refused the pod for its NUMA nodes, and to the owner of a node that does not
// enforce the annotations of pods, or changes its decision about the hints of VFs.
//
// The recorder of client-go does not fit: it queues a thousand events, retries each for two minutes, drops
// further events silently, and aggregates repeated events of an object, for which it needs permission to
// patch. A container gets its devices once, so a short queue and one attempt per event suffice; the outcome
// is counted. An event about a refused pod is sent again with the next list of refused pods.
type eventSender struct {
	config eventsConfig
	client rest.Interface
	queue  chan *corev1.Event
	unsent system.Complaint

	mu   sync.Mutex
	told map[string]bool // UIDs of pods of the last call of Rejected whose events are sent or in the queue
	// events about the unsound devices of the last call of Unsound, sent or in the queue
	unsound map[coordination.Unsound]*corev1.Event
	// those of earlier calls that were good, or bad for another reason, since; at most queueLength
	recovered map[coordination.Unsound]bool
	many      bool // there were more: from then on all count as recovered

	unenforced unenforced
}

// openEvents returns a Sender; Run sends.
func openEvents(config eventsConfig) (*eventSender, error) {
	server, err := intent.ServerConfig(config.APIServer)
	if err != nil {
		return nil, err
	}
	client, err := intent.NewClient(server, &corev1.Event{})
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server for events: %w", err)
	}
	return &eventSender{
		config: config, client: client, queue: make(chan *corev1.Event, queueLength),
		recovered: map[coordination.Unsound]bool{},
	}, nil
}

// Tell queues an event about an Allocate with a worse result than same-switch pairs, if the pod is certain.
// Tell never blocks.
func (s *eventSender) Tell(v admission.Verdict) {
	if v.Container == nil || v.PodUID == "" {
		return
	}
	pod := v.Container.Pod
	explain := fmt.Sprintf("kubectl tandem explain %s/%s", pod.Namespace, pod.Name)
	switch v.Outcome {
	case admission.Degraded:
		s.enqueueEvent(s.newEvent(pod, v.PodUID, reasonDegraded,
			fmt.Sprintf("container %s: %d of %d pairs of a GPU and a VF are on one switch (%s); why: %s",
				v.Container.Name, placement.Together(v.Pairs), len(v.Pairs), placement.Levels(v.Pairs), explain)))
	case admission.RefusedAlignment:
		const who = "; who holds the rest: "
		refusal := cutMessage(fmt.Sprintf("container %s: %s", v.Container.Name, v.Refusal),
			maxMessage-len(who)-len(explain))
		s.enqueueEvent(s.newEvent(pod, v.PodUID, reasonRefused, refusal+who+explain))
	}
}

// Rejected queues one event for each pod that the kubelet has refused for its NUMA nodes. Each call passes
// all refused pods, including those of earlier calls, whose events are queued again if they were not taken.
// Rejected never blocks.
func (s *eventSender) Rejected(pods []intent.Rejected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[string]bool{}
	for _, p := range pods {
		if s.told[p.UID] {
			told[p.UID] = true
			continue
		}
		event := s.newEvent(p.Pod, p.UID, reasonRejected, fmt.Sprintf("no minimal set of NUMA nodes of node %s "+
			"had all devices and CPUs of a container free (TopologyAffinityError); requests that the node always "+
			"refuses, and the way out: kubectl tandem doctor %[1]s", s.config.Node))
		event.Name = sameName(p.Name, p.UID)
		if s.enqueueEvent(event) {
			told[p.UID] = true
		}
	}
	s.told = told
}

// unenforced is a time without enforcement of the annotations of the node's pods.
type unenforced struct {
	since time.Time // zero while they are enforced
	seen  time.Time // the last call: no call comes while the other plugin serves
	told  bool      // the event is sent or in the queue
}

// lasting is the time without enforcement that is more than a restart of the kubelet. Two looks are about as
// far apart at the most.
const lasting = time.Minute

// Enforced queues one event about the node for each time in which its pods' annotations are not enforced,
// once the time lasts. Each call has the state of now; an event that was not taken is queued again by the
// next call. Enforced never blocks.
func (s *eventSender) Enforced(now intent.Enforcement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case now.Enforced():
		s.unenforced = unenforced{}
		return
	case s.unenforced.since.IsZero(), time.Since(s.unenforced.seen) > 2*lasting:
		s.unenforced = unenforced{since: time.Now()}
	}
	s.unenforced.seen = time.Now()
	lasts := now.TooLarge || time.Since(s.unenforced.since) >= lasting
	if lasts && !s.unenforced.told {
		s.unenforced.told = s.enqueueEvent(s.nodeEvent(reasonUnenforced, now.String()))
	}
}

// Hints queues an event about the node, which has changed its decision about the NUMA hints of a pool of VFs.
// Hints never blocks.
func (s *eventSender) Hints(resource, decision string) {
	event := s.nodeEvent(reasonHints, resource+": "+decision)
	event.Type = corev1.EventTypeNormal
	s.enqueueEvent(event)
}

func (s *eventSender) nodeEvent(reason, message string) *corev1.Event {
	const namespace = "default" // of events about objects without one
	node := s.config.Node
	event := s.newEvent(kubelet.Pod{Namespace: namespace, Name: node}, node, reason, message)
	event.InvolvedObject.Kind, event.InvolvedObject.Namespace = "Node", ""
	return event
}

// shortDigest returns a short name of a text.
func shortDigest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16] }

// Unsound queues one event for each unsound device of a container, when the device gets unsound or for
// another reason. A daemon that starts does not know which events are written, and gives them the names of
// before; an event about a device that was good meanwhile has a name of its own. Each call passes all such
// devices; events that were not taken are queued again by the next call. Unsound never blocks.
func (s *eventSender) Unsound(devices []coordination.Unsound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := map[coordination.Unsound]*corev1.Event{}
	for _, d := range devices {
		event, before := s.unsound[d]
		if !before {
			event = s.unsoundEvent(d)
		}
		if before || s.enqueueEvent(event) {
			told[d] = event
		}
	}
	for d := range s.unsound {
		if told[d] != nil {
			continue
		}
		s.many = s.many || len(s.recovered) >= queueLength
		if !s.many {
			s.recovered[d] = true
		}
	}
	s.unsound = told
}

func (s *eventSender) unsoundEvent(d coordination.Unsound) *corev1.Event {
	reason, others := deviceFailed, "no other container gets it"
	if d.Health == device.Degraded {
		reason, others = deviceDegraded, "other containers get it last"
	}
	event := s.newEvent(d.Pod, d.UID, reason,
		fmt.Sprintf("%s: %s %s is %s: %s; the container keeps the device, and %s",
			d.Holder(), d.Resource, d.Device, d.Health, d.Reason, others))
	if !s.many && !s.recovered[d] {
		what := strings.Join([]string{d.UID, d.Name, d.Resource, d.Device, d.Health, d.Reason}, "\n")
		event.Name = sameName(d.Pod.Name, shortDigest(what))
	}
	return event
}

// sameName returns the name of an event about a pod that the next daemon gives it too, or the other daemon of
// the node that takes over: an event of the same name is not written twice while the API server keeps it.
func sameName(pod, what string) string {
	const longest = 253 // DNS1123SubdomainMaxLength in apimachinery/pkg/util/validation
	end := ".tandem-" + what
	return strings.TrimRight(pod[:min(len(pod), longest-len(end))], "-.") + end
}

// retryLater makes the next call of Rejected, Enforced or Unsound queue their events again.
func (s *eventSender) retryLater(event *corev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Reason {
	case reasonRejected:
		delete(s.told, string(event.InvolvedObject.UID))
	case reasonUnenforced:
		s.unenforced.told = false
	}
	maps.DeleteFunc(s.unsound, func(_ coordination.Unsound, told *corev1.Event) bool { return told == event })
}

// enqueueEvent reports whether the queue had a place for an event.
func (s *eventSender) enqueueEvent(event *corev1.Event) bool {
	select {
	case s.queue <- event:
		return true
	default:
		s.config.Count(eventDropped)
		return false
	}
}

func (s *eventSender) newEvent(pod kubelet.Pod, uid, reason, message string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: util.GenerateEventName(pod.Name, now.UnixNano()),
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(uid),
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: cutMessage(message, maxMessage),
		Source:         corev1.EventSource{Component: s.config.Component, Host: s.config.Node},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: s.config.Component, ReportingInstance: s.config.Node,
	}
}

// cutMessage shortens a message to at most most bytes, preferably at a comma.
func cutMessage(message string, most int) string {
	if len(message) <= most {
		return message
	}
	message = message[:most-len(" …")]
	if at := strings.LastIndex(message, ","); at > 0 {
		message = message[:at]
	}
	return strings.ToValidUTF8(message, "") + " …"
}

// Run sends queued events until ctx is done.
func (s *eventSender) Run(ctx context.Context) {
	for {
		select {
		case event := <-s.queue:
			s.sendEvent(ctx, event)
		case <-ctx.Done():
			return
		}
	}
}

func (s *eventSender) sendEvent(ctx context.Context, event *corev1.Event) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := s.client.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) { // of the daemon before
		err = nil
	}
	isNew := s.unsent.IsNew(err)
	if err == nil {
		s.config.Count(eventSent)
		return
	}
	s.retryLater(event)
	s.config.Count(eventFailed)
	if isNew {
		s.config.Log.Warn("event not written",
			"object", event.Namespace+"/"+event.InvolvedObject.Name, "reason", event.Reason, "error", err)
	}
}
