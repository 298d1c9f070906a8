// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tandem-k8s/tandem/coordination"
	"github.com/tandem-k8s/tandem/coordination/admission"
	"github.com/tandem-k8s/tandem/coordination/intent"
	"github.com/tandem-k8s/tandem/coordination/kubelet"
	"github.com/tandem-k8s/tandem/topology"
	"github.com/tandem-k8s/tandem/topology/placement"
)

// cluster is an API server that accepts events.
type cluster struct {
	t      *testing.T
	code   int
	events chan corev1.Event

	namespace string        // of the events; "" for team
	hold      chan struct{} // blocks requests until closed
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	<-c.hold
	namespace := c.namespace
	if namespace == "" {
		namespace = "team"
	}
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/"+namespace+"/events" {
		c.t.Errorf("%s %s", r.Method, r.URL)
	}
	var event corev1.Event
	if err := json.Unmarshal(body, &event); err != nil {
		c.t.Errorf("%v: %s", err, body)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(c.code)
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`
	_, _ = fmt.Fprintf(w, status,
		map[int]string{http.StatusForbidden: "Forbidden", http.StatusConflict: "AlreadyExists"}[c.code], c.code)
	c.events <- event
}

// openSender returns a sender to a cluster, and a channel of outcomes.
func openSender(t *testing.T, code int) (*eventSender, *cluster, chan string) {
	t.Helper()
	c := &cluster{t: t, code: code, events: make(chan corev1.Event, 2*queueLength), hold: make(chan struct{})}
	server := httptest.NewServer(c)
	outcomes := make(chan string, 4*queueLength)
	s, err := openEvents(eventsConfig{
		APIServer: &rest.Config{Host: server.URL, QPS: -1, Transport: &http.Transport{}}, Component: "tandem-gpu",
		Node: "node-1", Count: func(outcome string) { outcomes <- outcome }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		server.Close()
		s.config.APIServer.Transport.(*http.Transport).CloseIdleConnections()
	})
	return s, c, outcomes
}

func verdict(outcome admission.Outcome) admission.Verdict {
	v := admission.Verdict{
		Resource: "amd.com/gpu", Outcome: outcome, PodUID: "uid-1",
		Container: &kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, Name: "worker"},
	}
	for _, level := range []topology.Level{topology.PIX, topology.NODE, topology.PXB, topology.NODE} {
		v.Pairs = append(v.Pairs, placement.Pair{Distance: topology.Distance{Level: level}})
	}
	return v
}

// unsound returns a device of the container.
func unsound(id, health, reason string) coordination.Unsound {
	return coordination.Unsound{
		Container: kubelet.Container{Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, Name: "worker"},
		UID:       "uid-1", Resource: "tandem.dev/vf", Device: id, Health: health, Reason: reason,
	}
}

func TestEvents(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusCreated)
	close(c.hold)
	refusal := verdict(admission.RefusedAlignment)
	refusal.Refusal = "refuse 4 amd.com/gpu: " + strings.Repeat("held by team/other, ", 100)
	for _, outcome := range []admission.Outcome{admission.Aligned, admission.Granted, admission.RefusedDouble} {
		s.Tell(verdict(outcome)) // nothing to tell
	}
	unknown := verdict(admission.Degraded)
	unknown.PodUID = "" // may be another pod's
	s.Tell(unknown)
	s.Tell(verdict(admission.Degraded))
	s.Tell(refusal)
	for _, want := range []struct{ reason, message string }{
		{"AlignmentDegraded",
			`container worker: 2 of 4 pairs of a GPU and a VF are on one switch (1 PIX, 1 PXB, 2 NODE); why: kubectl tandem explain team/train-0`},
		{"AlignmentRefused", "container worker: refuse 4 amd.com/gpu: held by team/other, held by team/other"},
	} {
		got := <-c.events
		pod := got.InvolvedObject
		if got.Reason != want.reason || !strings.HasPrefix(got.Message, want.message) ||
			len(got.Message) > maxMessage || got.Type != corev1.EventTypeWarning {
			t.Errorf("event %s %s (%d bytes): %s", got.Type, got.Reason, len(got.Message), got.Message)
		}
		if !strings.HasSuffix(got.Message, "kubectl tandem explain team/train-0") {
			t.Errorf("event %s names no command: %s", got.Reason, got.Message)
		}
		if pod.Kind != "Pod" || pod.Name != "train-0" || pod.Namespace != "team" || pod.UID != "uid-1" ||
			got.Namespace != "team" || !strings.HasPrefix(got.Name, "train-0.") {
			t.Errorf("event %s about %+v", got.Name, pod)
		}
		if got.Source.Component != "tandem-gpu" || got.Source.Host != "node-1" || got.Count != 1 ||
			got.FirstTimestamp.IsZero() {
			t.Errorf("event of %+v, %d times since %v", got.Source, got.Count, got.FirstTimestamp)
		}
		if outcome := <-outcomes; outcome != eventSent {
			t.Errorf("was %s", outcome)
		}
	}
}

// A pod that the kubelet has refused for its NUMA nodes gets a single event, also across a restart of the
// daemon.
func TestRejectedPods(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusCreated)
	close(c.hold)
	pod := func(uid string) intent.Rejected {
		return intent.Rejected{Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, UID: uid}
	}
	names := map[string]bool{}
	for _, pods := range [][]intent.Rejected{
		nil, {pod("a")}, {pod("a")}, {pod("b"), pod("a")}, {pod("b")}, nil,
	} {
		s.Rejected(pods)
	}
	for range 2 {
		got := <-c.events
		names[got.Name] = true
		if outcome := <-outcomes; outcome != eventSent || got.Reason != "TopologyRefused" ||
			!strings.Contains(got.Message, "TopologyAffinityError") ||
			!strings.HasSuffix(got.Message, "kubectl tandem doctor node-1") {
			t.Errorf("%s, event %s: %s", outcome, got.Reason, got.Message)
		}
	}
	if !names["train-0.tandem-a"] || !names["train-0.tandem-b"] || len(s.told) != 0 {
		t.Errorf("events %v, remembered %v", names, s.told)
	}
	again, c, outcomes := openSender(t, http.StatusConflict)
	close(c.hold)
	again.Rejected([]intent.Rejected{pod("a")})
	if <-c.events; <-outcomes != eventSent {
		t.Error("an event that is there already has failed")
	}
}

// An event about a refused pod that the API server does not take, or that finds the queue full, is sent with
// a later list of refused pods, once.
func TestRejectedPodsAreToldLater(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusInternalServerError)
	pod := []intent.Rejected{{Pod: kubelet.Pod{Namespace: "team", Name: "train-0"}, UID: "uid-1"}}
	s.Tell(verdict(admission.Degraded))
	for len(s.queue) > 0 {
		runtime.Gosched() // until the first event is on its way
	}
	for range queueLength {
		s.Tell(verdict(admission.Degraded))
	}
	s.Rejected(pod)
	if outcome := <-outcomes; outcome != eventDropped {
		t.Errorf("with a full queue: was %s", outcome)
	}
	close(c.hold)
	for range queueLength + 1 {
		<-outcomes
		<-c.events
	}
	s.Rejected(pod)
	if outcome := <-outcomes; outcome != eventFailed {
		t.Errorf("was %s", outcome)
	}
	<-c.events
	c.code = http.StatusCreated
	for range 3 {
		s.Rejected(pod)
	}
	if outcome := <-outcomes; outcome != eventSent {
		t.Errorf("was %s", outcome)
	}
	if got := <-c.events; got.Reason != "TopologyRefused" {
		t.Errorf("event %s", got.Reason)
	}
	s.Rejected(pod)
	if len(s.queue) > 0 {
		t.Error("the event is sent twice")
	}
}

// A hanging API server loses events, but never delays the daemon.
func TestNothingWaitsForTheAPIServer(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusCreated)
	const told = 2*queueLength + 1
	for range told { // never blocks, although no request is answered
		s.Tell(verdict(admission.Degraded))
	}
	close(c.hold)
	var all []string
	for range told {
		all = append(all, <-outcomes)
	}
	dropped := len(slices.DeleteFunc(slices.Clone(all), func(o string) bool { return o != eventDropped }))
	if dropped < told-queueLength-1 || dropped > told-queueLength || slices.Contains(all, eventFailed) {
		t.Errorf("%d of %d were dropped: %q", dropped, told, all)
	}
}

// An unsound device of a container gets one event for each reason, and another one after it was good.
func TestUnsoundDeviceEvents(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusCreated)
	close(c.hold)
	vf := unsound("0000:0c:00.1", "degraded", "symbol_error increased")
	worse := unsound("0000:0c:00.1", "failed", "link_downed increased")
	for _, list := range [][]coordination.Unsound{nil, {vf}, {vf}, {worse}, nil, {worse}, {worse}} {
		s.Unsound(list)
	}
	names := map[string]bool{}
	for _, want := range []string{
		"DeviceDegraded container worker: tandem.dev/vf 0000:0c:00.1 is degraded: symbol_error increased; " +
			"the container keeps the device, and other containers get it last",
		"DeviceFailed container worker: tandem.dev/vf 0000:0c:00.1 is failed: link_downed increased; " +
			"the container keeps the device, and no other container gets it",
		"DeviceFailed container worker: tandem.dev/vf 0000:0c:00.1 is failed: link_downed increased; " +
			"the container keeps the device, and no other container gets it",
	} {
		got := <-c.events
		if text := got.Reason + " " + got.Message; text != want || <-outcomes != eventSent {
			t.Errorf("got %s, want %s", text, want)
		}
		if got.InvolvedObject.UID != "uid-1" || got.InvolvedObject.Name != "train-0" {
			t.Errorf("event about %v", got.InvolvedObject)
		}
		names[got.Name] = true
	}
	if len(s.queue) > 0 || len(names) != 3 {
		t.Errorf("an event is sent twice: %d names", len(names))
	}
	again, c, outcomes := openSender(t, http.StatusConflict) // the next daemon
	close(c.hold)
	again.Unsound([]coordination.Unsound{worse})
	if got := <-c.events; !names[got.Name] || <-outcomes != eventSent {
		t.Errorf("after a restart the event is %s", got.Name)
	}
}

func TestNamesOfEventsFit(t *testing.T) {
	name := sameName(strings.Repeat("p", 253), "uid")
	if len(name) != 253 || !strings.HasSuffix(name, ".tandem-uid") {
		t.Errorf("%d bytes: %s", len(name), name)
	}
}

// An event on an unsound device that the API server does not take is counted, and sent again: the fault of a
// NIC can be the reason for that.
func TestUnsoundDeviceIsToldLater(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusForbidden)
	close(c.hold)
	for range 2 {
		s.Unsound([]coordination.Unsound{unsound("0000:0c:00.1", "failed", "down")})
		select {
		case outcome := <-outcomes:
			if outcome != eventFailed {
				t.Errorf("was %s", outcome)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the event is not sent again")
		}
	}
}

// An event about a node has the reason for which annotations are not enforced. Each time without enforcement
// has an event of its own: the API server takes no second one of a name.
func TestUnenforced(t *testing.T) {
	s, c, _ := openSender(t, http.StatusCreated)
	c.namespace = "default"
	close(c.hold)
	tooLarge := intent.Enforcement{Why: "pods-api: the kubelet's list of pods is too large", TooLarge: true}
	unanswered := intent.Enforcement{Why: "kubelet: connection from port 4711 reset"}
	var names []string
	for _, now := range []intent.Enforcement{tooLarge, tooLarge, unanswered} {
		why := now.Why
		s.unenforced.since, s.unenforced.seen = time.Now().Add(-lasting), time.Now()
		s.Enforced(now)
		event := <-c.events
		if event.InvolvedObject.Kind != "Node" || event.InvolvedObject.Name != "node-1" ||
			event.Reason != reasonUnenforced || !strings.Contains(event.Message, why) {
			t.Errorf("event %+v", event)
		}
		names = append(names, event.Name)
		s.Enforced(intent.Enforcement{Source: intent.Kubelet})
	}
	if names[0] == names[1] || names[1] == names[2] {
		t.Errorf("names %q", names)
	}
	s.Hints("tandem.dev/vf", "no NUMA hints")
	event := <-c.events
	if event.InvolvedObject.Kind != "Node" || event.Reason != reasonHints ||
		event.Type != corev1.EventTypeNormal ||
		event.Message != "tandem.dev/vf: no NUMA hints" {
		t.Errorf("event %+v", event)
	}
}

// A reason that lasts is told once, and again if the API server did not take the event; a moment without an
// answer, as while the kubelet restarts, is not.
func TestLastingReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &eventSender{queue: make(chan *corev1.Event, 2), config: eventsConfig{Node: "node-1"}}
		look := func(after time.Duration, now intent.Enforcement, want int) {
			t.Helper()
			<-time.After(after)
			s.Enforced(now)
			if len(s.queue) != want {
				t.Errorf("%d events, want %d", len(s.queue), want)
			}
		}
		unanswered, answered := intent.Enforcement{Why: "no connection"}, intent.Enforcement{Source: intent.Kubelet}
		look(0, unanswered, 0)
		look(lasting/2, answered, 0)
		look(lasting/2, unanswered, 0)
		look(lasting-1, unanswered, 0)
		look(1, unanswered, 1)
		look(lasting, intent.Enforcement{Why: "no connection, from another port"}, 1)
		s.retryLater(<-s.queue)
		look(1, unanswered, 1)
		look(time.Hour, unanswered, 1) // another plugin has served meanwhile
		look(lasting, unanswered, 2)
	})
}

// A device that fails again is told again, whatever many other devices have recovered meanwhile.
func TestManyRecoveries(t *testing.T) {
	s, c, outcomes := openSender(t, http.StatusCreated)
	close(c.hold)
	tell := func(i int) string {
		s.Unsound([]coordination.Unsound{unsound(fmt.Sprint(i), "unhealthy", "x")})
		e := <-c.events
		<-outcomes
		s.Unsound(nil)
		return e.Name
	}
	first := tell(0)
	for i := 1; i <= queueLength+1; i++ {
		tell(i)
	}
	if again := tell(0); again == first {
		t.Errorf("the second failure has the name of the first event, %s, and is not written", again)
	}
}
