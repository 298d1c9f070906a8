// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// The driver's library deletes a slice with preconditions (resourceslicecontroller.go): a real server answers
// 409 if the slice is another one, or has changed.
func TestDeleteHasPreconditions(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	for what, p := range map[string]metav1.Preconditions{
		"version": {ResourceVersion: new("999")}, "UID": {UID: new(types.UID("another"))},
	} {
		err := c.Delete(t.Context(), "s", metav1.DeleteOptions{Preconditions: &p})
		left := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s")
		if !apierrors.IsConflict(err) || left == nil {
			t.Errorf("another %s: %v, and the slice is %v", what, err, left)
		}
		s.Put(slice("s"))
	}
}

// Dry runs of changes are refused.
func TestDryRunsHaveNoEffect(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	o := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s").DeepCopy()
	o.Spec.Pool.Name = "changed"
	_, err := c.Update(t.Context(), o, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if now := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s"); now.Spec.Pool.Name != "" {
		t.Errorf("update: %v, the slice is %v", err, now.Spec.Pool)
	}
	err = c.Delete(t.Context(), "s", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if apiserver.Get[*resourceapi.ResourceSlice](s, "", "s") == nil {
		t.Errorf("delete: %v, the slice is gone", err)
	}
}

// A field manager that applies without an item that it has applied before removes it; apply needs a manager.
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

// A write that changes nothing makes neither a version nor an event.
func TestNothingChanges(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	before := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s")
	after, err := c.Update(t.Context(), before.DeepCopy(), metav1.UpdateOptions{})
	if err != nil || after.ResourceVersion != before.ResourceVersion {
		t.Errorf("version %s after %s: %v", after.ResourceVersion, before.ResourceVersion, err)
	}
}

// A created object has a UID and a time.
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

// An update without a version is unconditional for slices (AllowUnconditionalUpdate); one with another UID is
// a conflict; one of another object's body is a bad request.
func TestUpdated(t *testing.T) {
	s := apiserver.New(slice("s"))
	c := client.New(s).ResourceV1().ResourceSlices()
	if _, err := c.Update(t.Context(), slice("s"), metav1.UpdateOptions{}); err != nil {
		t.Errorf("without a version: %v", err)
	}
	o := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s").DeepCopy()
	o.UID = "another"
	if _, err := c.Update(t.Context(), o, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
}

// Selectors by label are refused.
func TestSelectsByLabel(t *testing.T) {
	s := apiserver.New(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	list, err := client.New(s).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "has=label"})
	if err == nil && len(list.Items) > 0 {
		t.Errorf("a selector by label is ignored: %v", list.Items)
	}
}

// An object that a watch selects no more is deleted for the watch, and one that it selects anew is added.
func TestSelectedNoMore(t *testing.T) {
	s := apiserver.New(slice("s"))
	w, err := client.New(s).ResourceV1().ResourceSlices().Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "spec.nodeName=a"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	<-w.ResultChan()
	apiserver.Change(s, "", "s", func(o *resourceapi.ResourceSlice) { o.Spec.NodeName = new("b") })
	select {
	case e := <-w.ResultChan():
		if e.Type != "DELETED" {
			t.Error(e.Type)
		}
	case <-time.After(time.Second):
		t.Error("no event")
	}
}

// Since a version, events come in the order of versions: a client goes on from the version of the latest.
func TestEventsInOrder(t *testing.T) {
	s := apiserver.New(slice("s"))
	from := apiserver.Get[*resourceapi.ResourceSlice](s, "", "s").ResourceVersion
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
