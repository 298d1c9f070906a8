// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	apply "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/tandem-k8s/tandem/test/apiserver"
	"github.com/tandem-k8s/tandem/test/apiserver/client"
)

func slice(name string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "tandem.dev", NodeName: new("a")},
	}
}

func latest(s *apiserver.Server) *resourceapi.ResourceSlice {
	return apiserver.Get[*resourceapi.ResourceSlice](s, "", "s")
}

// TestDeleteHasPreconditions: the driver's library deletes a slice with preconditions
// (resourceslicecontroller.go); the answer is 409 if the slice is another one, or has changed.
func TestDeleteHasPreconditions(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	for what, p := range map[string]metav1.Preconditions{
		"version": {ResourceVersion: new("999")}, "UID": {UID: new(types.UID("another"))},
	} {
		err := c.Delete(t.Context(), "s", metav1.DeleteOptions{Preconditions: &p})
		left := latest(s)
		if !apierrors.IsConflict(err) || left == nil {
			t.Errorf("another %s: %v, and the slice is %v", what, err, left)
		}
		s.Put(slice("s"))
	}
}

// TestDryRunOfAChange: the server refuses it.
func TestDryRunOfAChange(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	o := latest(s).DeepCopy()
	o.Spec.Pool.Name = "changed"
	_, err := c.Update(t.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if now := latest(s); !apierrors.IsBadRequest(err) || now.Spec.Pool.Name != "" {
		t.Errorf("update: %v, the slice is %v", err, now.Spec.Pool)
	}
	err = c.Delete(t.Context(), "s", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if now := latest(s); !apierrors.IsBadRequest(err) || now == nil {
		t.Errorf("delete: %v, the slice is %v", err, now)
	}
}

// TestApplyRemoves: a field manager that applies without an item that it has applied before removes the
// item; apply needs a manager.
func TestApplyRemoves(t *testing.T) {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "u"}}
	s := apiserver.New(claim)
	c := client.New(s).ResourceV1().ResourceClaims("n")
	do := func(o metav1.ApplyOptions, devices ...*apply.AllocatedDeviceStatusApplyConfiguration) error {
		_, err := c.ApplyStatus(t.Context(), apply.ResourceClaim("c", "n").WithUID("u").
			WithStatus(apply.ResourceClaimStatus().WithDevices(devices...)), o)
		return err
	}
	one := apply.AllocatedDeviceStatus().WithDriver("tandem.dev").WithPool("a").WithDevice("d")
	if err := do(metav1.ApplyOptions{}, one); err == nil {
		t.Error("applies without a field manager")
	}
	if err := do(metav1.ApplyOptions{FieldManager: "m"}, one); err != nil {
		t.Fatal(err)
	}
	if err := do(metav1.ApplyOptions{FieldManager: "m"}); err != nil {
		t.Fatal(err)
	}
	if now := apiserver.Get[*resourceapi.ResourceClaim](s, "n", "c").Status.Devices; len(now) != 0 {
		t.Errorf("applied without devices: has %v", now)
	}
}

// TestNothingChanges: a write that changes nothing makes no version.
func TestNothingChanges(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	before := latest(s)
	after, err := c.Update(t.Context(), before.DeepCopy(), metav1.UpdateOptions{})
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("version %s after %s: %v", after.ResourceVersion, before.ResourceVersion, err)
	}
}

// TestCreated: a created object has a UID and a time. What exists, or has a version, cannot be created.
func TestCreated(t *testing.T) {
	s := apiserver.New()
	c := client.New(s).ResourceV1().ResourceSlices()
	o, err := c.Create(t.Context(), slice("s"), metav1.CreateOptions{})
	if err != nil || o.UID == "" || o.CreationTimestamp.IsZero() {
		t.Errorf("UID %q, created %v: %v", o.UID, o.CreationTimestamp, err)
	}
	_, err = c.Create(t.Context(), slice("s"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("dry run of a name that exists: %v", err)
	}
	versioned := slice("t")
	versioned.ResourceVersion = "7"
	if _, err := c.Create(t.Context(), versioned, metav1.CreateOptions{}); err == nil {
		t.Error("creates an object with a version")
	}
}

// TestUpdated: an update without a version is unconditional (AllowUnconditionalUpdate of Kubernetes' strategy
// for slices); one with another version or UID is a conflict.
func TestUpdated(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	changed := slice("s")
	changed.Spec.Pool.Name = "changed"
	if _, err := c.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Errorf("without a version: %v", err)
	}
	for what, change := range map[string]func(*resourceapi.ResourceSlice){
		"UID":     func(o *resourceapi.ResourceSlice) { o.UID = "another" },
		"version": func(o *resourceapi.ResourceSlice) { o.ResourceVersion = "1" },
	} {
		o := latest(s).DeepCopy()
		change(o)
		if _, err := c.Update(t.Context(), o, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

// TestSelectorByLabel: the server refuses it.
func TestSelectorByLabel(t *testing.T) {
	s := apiserver.New(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	_, err := client.New(s).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "has=label"})
	if !apierrors.IsBadRequest(err) {
		t.Error(err)
	}
}

// TestSelectedNoMore: an object that a watch selects no more is deleted for the watch, and one that the watch
// selects anew is added.
func TestSelectedNoMore(t *testing.T) {
	s := apiserver.New(slice("s"))
	w, err := client.New(s).ResourceV1().ResourceSlices().Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	move := func(node string) {
		apiserver.Change(s, "", "s", func(o *resourceapi.ResourceSlice) { o.Spec.NodeName = &node })
	}
	for _, step := range []struct {
		node string
		want watch.EventType
	}{{"b", watch.Deleted}, {"a", watch.Added}} {
		move(step.node)
		if e := <-w.ResultChan(); e.Type != step.want {
			t.Errorf("moved to %s: %s, want %s", step.node, e.Type, step.want)
		}
	}
}

// TestExpired: the server ends a watch since a version that it has forgotten.
func TestExpired(t *testing.T) {
	s := apiserver.New(slice("s"))
	since := metav1.ListOptions{ResourceVersion: latest(s).ResourceVersion}
	s.Compact()
	w, err := client.New(s).ResourceV1().ResourceSlices().Watch(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%s %v", e.Type, e.Object)
	}
}

// TestEventsInOrder: since a version, events come in the order of versions, because a client goes on from the
// version of the latest.
func TestEventsInOrder(t *testing.T) {
	s := apiserver.New(slice("s"))
	from := latest(s).ResourceVersion
	s.Put(slice("b"), slice("a"))
	apiserver.Remove[*resourceapi.ResourceSlice](s, "", "s")
	since := metav1.ListOptions{ResourceVersion: from}
	w, err := client.New(s).ResourceV1().ResourceSlices().Watch(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []string
	for range 3 {
		e := <-w.ResultChan()
		o := e.Object.(*resourceapi.ResourceSlice)
		got = append(got, string(e.Type)+" "+o.Name+" "+o.ResourceVersion)
	}
	if want := []string{"ADDED b 2", "ADDED a 3", "DELETED s 4"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
